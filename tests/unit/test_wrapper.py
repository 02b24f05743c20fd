"""``./headwater`` in a lake folder: it fetches, verifies and sets up a release, and runs it.

A tiny repository stands in for Headwater's. ``tests/local/test_lake_folder.py`` has the real one.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from headwater.lake_folder import LakeFolder, LakeSettings
from headwater.new_folder import WRAPPER, of_release
from headwater.waiting import wait_until
from tests import programs

# It stands in for tools/setup: it counts its runs, and waits if somebody says so.
SETUP = """#!/bin/sh
set -eu
cd "$(dirname "$0")/.."
echo run >> "$SETUPS"
echo "Python packages … installed"
while [ -e "$SETUPS.wait" ]; do sleep 0.05; done
if [ -e "$SETUPS.fail" ]; then echo "no space left" >&2; exit 3; fi
mkdir -p .venv/bin
ln -sf "$PYTHON" .venv/bin/python
cp command .venv/bin/headwater
chmod +x .venv/bin/headwater
"""
# It stands in for the command: it says its release, its arguments and its folder.
COMMAND = """#!/bin/sh
echo "VERSION" "$@" in "$PWD"
if [ -e /dev/fd/8 ]; then echo "it holds the lock of the set-up"; fi
exit 7
"""
STATUS = 7
"""Of the stand-in command."""
USER_ERROR = 2


@dataclass
class Repository:
    """A git repository with releases."""

    folder: Path

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        self.git("init", "--quiet", "--initial-branch", "main")

    def git(self, *arguments: str) -> str:
        own = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-C", str(self.folder)]
        return subprocess.run([*own, *arguments], check=True, capture_output=True, text=True).stdout.strip()

    def commit(self, version: str, command: str = COMMAND) -> str:
        tools = self.folder / "tools"
        tools.mkdir(exist_ok=True)
        (tools / "setup").write_text(SETUP)
        (tools / "setup").chmod(0o755)
        (self.folder / "command").write_text(command.replace("VERSION", version))
        (self.folder / ".gitignore").write_text("/.venv/\n")
        self.git("add", ".")
        self.git("commit", "--quiet", "--allow-empty", "--message", version)
        return self.git("rev-parse", "HEAD")

    def release(self, version: str, *, annotated: bool = False, command: str = COMMAND) -> str:
        """Commit a release, tag it, and return its commit."""
        commit = self.commit(version, command)
        self.git("tag", "--force", *(["--annotate", "--message", version] if annotated else []), f"v{version}")
        return commit


class Lake:
    """A lake folder with the shipped script, and a cache of its own."""

    def __init__(self, folder: Path, repository: Path | str) -> None:
        self.folder = folder / "lake"
        self.folder.mkdir()
        self.repository = str(repository)
        self.home = folder / "cache"
        self.setups = folder / "setups"
        self.variables = {
            **os.environ,
            "HEADWATER_HOME": str(self.home),
            "SETUPS": str(self.setups),
            "PYTHON": sys.executable,
        }
        (self.folder / WRAPPER).write_text(of_release(self.folder)[self.folder / WRAPPER])
        (self.folder / WRAPPER).chmod(0o755)

    @property
    def settings(self) -> Path:
        return self.folder / "headwater.yaml"

    def want(self, release: str, commit: str | None = None) -> None:
        of = release if commit else None
        settings = LakeSettings(name="lake", release=release, repository=self.repository, commit=commit, commit_of=of)
        self.settings.write_text(settings.text())

    def change_release(self, before: str, after: str) -> None:
        """Change the number as a person does."""
        self.settings.write_text(self.settings.read_text().replace(f"release: {before}", f"release: {after}"))

    def run(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return programs.run([self.folder / WRAPPER, *arguments], cwd=self.folder, env={**self.variables, **variables})

    def upgraded(self, version: str) -> str:
        """Upgrade, see that the release's own verb ran, and return what the script said."""
        done = self.run("upgrade")
        said = f"{version} upgrade --folder {self.folder} in {self.folder}\n"
        assert (done.returncode, done.stdout) == (STATUS, said), done.stderr
        return done.stderr

    def start(self, *arguments: str, errors: Path, **variables: str) -> subprocess.Popen[bytes]:
        with errors.open("wb") as file:
            return subprocess.Popen(
                [self.folder / WRAPPER, *arguments],
                cwd=self.folder,
                env={**self.variables, **variables},
                stdout=subprocess.DEVNULL,
                stderr=file,
            )

    @property
    def setup_runs(self) -> int:
        return len(self.setups.read_text().splitlines()) if self.setups.exists() else 0

    def refused(self, *arguments: str, **variables: str) -> str:
        """Return why nothing was run."""
        done = self.run(*arguments, **variables)
        assert done.returncode == USER_ERROR
        assert done.stdout == ""
        assert self.setup_runs == 0
        return done.stderr


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "headwater")


@pytest.fixture
def lake(repository: Repository, tmp_path: Path) -> Lake:
    return Lake(tmp_path, repository.folder)


def instead_of(program: str, folder: Path, script: str) -> str:
    """Return a PATH on which a script stands before a program, which the script finds as $REAL."""
    found = shutil.which(program)
    folder.mkdir(exist_ok=True)
    (folder / program).write_text(f"#!/bin/sh\nREAL={found}\n{script}")
    (folder / program).chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def path_without(program: str, folder: Path) -> str:
    """Return a PATH that has what the script needs, without one program."""
    folder.mkdir()
    for name in [
        "sh",
        "dirname",
        "sed",
        "mkdir",
        "cp",
        "mv",
        "rm",
        "cat",
        "tail",
        "find",
        "id",
        "ls",
        "git",
        "python3",
    ]:
        found = shutil.which(name)
        assert found
        if name != program:
            (folder / name).symlink_to(found)
    return str(folder)


@pytest.mark.parametrize("annotated", [False, True])
def test_a_release_runs_with_the_arguments_in_the_folder(repository: Repository, lake: Lake, annotated: bool) -> None:
    lake.want("0.3.0", repository.release("0.3.0", annotated=annotated))
    repository.release("0.4.0")
    done = lake.run("status", "--env", "my dev")
    assert done.returncode == STATUS
    assert done.stdout == f"0.3.0 status --env my dev in {lake.folder}\n"
    assert done.stderr.startswith("Headwater 0.3.0 is not set up yet: fetching it from ")


def test_later_runs_need_neither_network_nor_set_up(repository: Repository, lake: Lake) -> None:
    lake.want("0.3.0", repository.release("0.3.0"))
    lake.run()
    repository.folder.rename(repository.folder.with_name("gone"))
    done = lake.run("status")
    assert (done.returncode, done.stdout, done.stderr) == (STATUS, f"0.3.0 status in {lake.folder}\n", "")
    assert lake.setup_runs == 1


def test_the_checkout_in_the_cache_stays_clean(repository: Repository, lake: Lake) -> None:
    commit = repository.release("0.3.0")
    lake.want("0.3.0", commit)
    lake.run()
    git = ["git", "-C", str(lake.home / commit)]
    assert subprocess.check_output([*git, "status", "--porcelain"], text=True) == ""
    assert subprocess.check_output([*git, "rev-parse", "HEAD"], text=True).strip() == commit
    origin = subprocess.check_output([*git, "remote", "get-url", "origin"], text=True)
    assert origin.strip() == str(repository.folder)


@pytest.mark.parametrize("is_set_up", [True, False])
@pytest.mark.parametrize("change", ["a changed file", "another file", "another commit", "no repository"])
def test_a_changed_checkout_does_not_run(repository: Repository, lake: Lake, change: str, is_set_up: bool) -> None:
    other = repository.release("0.2.0")
    commit = repository.release("0.3.0")
    lake.want("0.3.0", commit)
    lake.run()
    checkout = lake.home / commit
    if not is_set_up:
        (checkout / ".venv" / "ready").unlink()
    if change == "another commit":
        git = ["git", "-C", str(checkout)]
        subprocess.run([*git, "fetch", "--quiet", "origin", other], check=True)
        subprocess.run([*git, "checkout", "--quiet", "--detach", other], check=True)
    elif change == "no repository":
        (checkout / ".git" / "HEAD").unlink()
    else:
        (checkout / ("command" if change == "a changed file" else "sitecustomize.py")).write_text("mine")
    done = lake.run("status")
    assert (done.returncode, done.stdout, lake.setup_runs) == (USER_ERROR, "", 1)
    assert f"expected commit {commit} without a change. Delete this folder" in done.stderr
    shutil.rmtree(checkout)
    assert lake.run("status").returncode == STATUS


def test_the_cache_is_the_users_alone(repository: Repository, lake: Lake, tmp_path: Path) -> None:
    lake.want("0.3.0", repository.release("0.3.0"))
    lake.home = tmp_path / "new" / "cache"
    assert lake.run(HEADWATER_HOME=str(lake.home)).returncode == STATUS
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in (lake.home, lake.home.parent)] == [0o700, 0o700]
    for mode, status in ((0o755, STATUS), (0o775, USER_ERROR), (0o757, USER_ERROR)):
        lake.home.chmod(mode)
        done = lake.run(HEADWATER_HOME=str(lake.home))
        assert done.returncode == status
        assert ("expected a folder of yours that no one else can write to" in done.stderr) == (status == USER_ERROR)


def test_a_cache_of_another_user_is_refused(repository: Repository, lake: Lake, tmp_path: Path) -> None:
    lake.want("0.3.0", repository.release("0.3.0"))
    lake.home.mkdir(mode=0o755)
    path = instead_of("id", tmp_path / "bin", f"echo {os.getuid() + 1}\n")
    assert "expected a folder of yours that no one else can write to" in lake.refused(PATH=path)


def test_a_commit_without_a_tag_is_a_release(repository: Repository, lake: Lake) -> None:
    commit = repository.commit("next")
    repository.commit("after")
    lake.want(commit)
    assert lake.run().stdout == f"next in {lake.folder}\n"


def test_fields_may_have_quotes_and_comments(repository: Repository, lake: Lake) -> None:
    commit = repository.release("0.3.0")
    lines = ("# ours", "name: lake", "release: '0.3.0'  # the newest", f'repository: "{repository.folder}"   ')
    lake.settings.write_text("\n".join([*lines, f"commit:   {commit}", "commit_of: 0.3.0"]))
    assert lake.run().stdout == f"0.3.0 in {lake.folder}\n"


def test_a_repository_may_be_named_from_the_folder(repository: Repository, lake: Lake) -> None:
    lake.repository = f"../{repository.folder.name}"
    lake.want("0.3.0", repository.release("0.3.0"))
    assert lake.run().stdout == f"0.3.0 in {lake.folder}\n"


def test_a_moved_tag_is_refused(repository: Repository, lake: Lake) -> None:
    commit = repository.release("0.3.0")
    lake.want("0.3.0", commit)
    moved = repository.release("0.3.0")
    # Another release at the old commit does not excuse it.
    repository.git("tag", "v0.2.0", commit)
    for verb in ("status", "upgrade"):
        said = lake.refused(verb)
        assert f"commit: found {commit}" in said
        assert f"expected {moved}, the commit of v0.3.0" in said
    assert f"commit: {commit}\n" in lake.settings.read_text()
    assert not (lake.home / commit).exists()
    assert not (lake.home / moved).exists()


def test_a_tag_that_moves_during_the_fetch_is_refused(repository: Repository, lake: Lake, tmp_path: Path) -> None:
    commit = repository.release("0.3.0")
    moved = repository.commit("other")
    lake.want("0.3.0", commit)
    move = f'"$REAL" -C {repository.folder} tag --force v0.3.0 {moved} >/dev/null'
    script = f'case "$*" in *" fetch --quiet "*) {move};; esac\nexec "$REAL" "$@"\n'
    assert f"commit: found {commit}, expected {moved}" in lake.refused(PATH=instead_of("git", tmp_path / "bin", script))
    assert not (lake.home / commit).exists()


def test_a_changed_release_needs_an_upgrade(repository: Repository, lake: Lake) -> None:
    lake.want("0.3.0", repository.release("0.3.0"))
    repository.release("0.4.0")
    lake.run()
    lake.change_release("0.3.0", "0.4.0")
    done = lake.run("status")
    assert (done.returncode, done.stdout) == (USER_ERROR, "")
    assert "commit_of: found '0.3.0', expected 0.4.0, as in `release`: run ./headwater upgrade" in done.stderr


def test_a_fetched_commit_of_another_release_is_refused(repository: Repository, lake: Lake) -> None:
    commit = repository.release("0.3.0")
    other = repository.release("0.4.0")
    lake.want("0.3.0", commit)
    lake.run()
    lake.want("0.4.0", commit)
    done = lake.run("status")
    assert (done.returncode, done.stdout) == (USER_ERROR, "")
    assert f"commit: found {commit}, expected {other}, the commit of v0.4.0" in done.stderr


def test_upgrade_records_the_commit_and_runs_the_releases_verb(repository: Repository, lake: Lake) -> None:
    lake.want("0.3.0", repository.release("0.3.0"))
    commit = repository.release("0.4.0", annotated=True)
    lake.settings.write_text(f"# ours\n{lake.settings.read_text()}".removesuffix("\n"))
    lake.change_release("0.3.0", "0.4.0")
    said = lake.upgraded("0.4.0")
    assert f"verified release 0.4.0, and recorded its commit {commit} in {lake.settings}" in said
    assert f"Setting up release 0.4.0 in {lake.home / commit}" in said
    assert LakeFolder(lake.folder).settings.commit_of == "0.4.0"
    assert lake.settings.read_text() == (
        f"# ours\nname: lake\nrelease: 0.4.0\nrepository: {repository.folder}\ncommit: {commit}\ncommit_of: 0.4.0\n"
    )
    assert lake.run("status").stdout == f"0.4.0 status in {lake.folder}\n"
    assert lake.setup_runs == 1


def test_two_hyphens_pass_upgrade_on_to_the_release(repository: Repository, lake: Lake) -> None:
    lake.want("0.3.0", repository.release("0.3.0"))
    assert lake.run("--", "upgrade").stdout == f"0.3.0 -- upgrade in {lake.folder}\n"


def test_upgrade_goes_on_after_a_set_up_that_failed(repository: Repository, lake: Lake) -> None:
    lake.want("0.3.0", repository.release("0.3.0"))
    commit = repository.release("0.4.0")
    lake.change_release("0.3.0", "0.4.0")
    fail = lake.setups.with_suffix(".fail")
    fail.touch()
    done = lake.run("upgrade")
    assert (done.returncode, done.stdout) == (3, "")
    assert f"commit: {commit}\n" in lake.settings.read_text()
    fail.unlink()
    assert "has the commit of release 0.4.0 already" in lake.upgraded("0.4.0")


def test_a_script_that_is_replaced_while_it_runs_ends_as_it_was(repository: Repository, lake: Lake) -> None:
    # As the release's verb does, the command writes another script beside this one and renames it.
    replaces = COMMAND.replace("exit 7", 'printf "exit 9\\n" > .new && mv .new headwater\nexit 7')
    lake.want("0.3.0", repository.release("0.3.0", command=replaces))
    lake.upgraded("0.3.0")
    assert (lake.folder / WRAPPER).read_text() == "exit 9\n"


def test_upgrade_keeps_the_commit_of_the_same_release(repository: Repository, lake: Lake) -> None:
    lake.want("0.3.0", repository.release("0.3.0"))
    before = lake.settings.read_text()
    assert "upgrade: found --yes, expected no argument" in lake.refused("upgrade", "--yes")
    for _ in range(2):
        assert "has the commit of release 0.3.0 already" in lake.upgraded("0.3.0")
    assert lake.settings.read_text() == before
    assert lake.setup_runs == 1


def test_a_record_cut_off_leaves_the_settings(repository: Repository, lake: Lake, tmp_path: Path) -> None:
    lake.want("0.3.0", repository.release("0.3.0"))
    before = lake.settings.read_text().replace("release: 0.3.0", "release: 0.4.0")
    lake.settings.write_text(before)
    lake.settings.chmod(0o640)
    repository.release("0.4.0")
    path = instead_of("mv", tmp_path / "programs", 'case $2 in */headwater.yaml) exit 1 ;; esac; exec $REAL "$@"\n')
    assert lake.run("upgrade", PATH=path).returncode == 1
    assert lake.settings.read_text() == before
    lake.run("upgrade")
    assert "commit_of: 0.4.0" in lake.settings.read_text()
    assert lake.settings.stat().st_mode & 0o777 == 0o640


def test_a_commit_of_unknown_origin_stays_what_it_is(repository: Repository, lake: Lake) -> None:
    commit = repository.release("0.3.0")
    lake.want("0.3.0", commit)
    recorded = lake.settings.read_text()
    unknown = recorded.replace("commit_of: 0.3.0\n", "")
    lake.settings.write_text(unknown)
    moved = repository.release("0.3.0")
    assert f"commit: found {commit}, expected {moved}" in lake.refused("upgrade")
    assert lake.settings.read_text() == unknown
    repository.git("tag", "--force", "v0.3.0", commit)
    lake.upgraded("0.3.0")
    assert lake.settings.read_text() == recorded


def test_upgrade_records_nothing_that_it_cannot_fetch(repository: Repository, lake: Lake, tmp_path: Path) -> None:
    lake.want("0.3.0", repository.release("0.3.0"))
    repository.release("0.4.0")
    lake.change_release("0.3.0", "0.4.0")
    before = lake.settings.read_text()
    script = 'case "$*" in *" fetch --quiet "*) exit 1;; esac\nexec "$REAL" "$@"\n'
    assert "the fetch failed" in lake.refused("upgrade", PATH=instead_of("git", tmp_path / "bin", script))
    assert lake.settings.read_text() == before


def test_upgrade_to_a_commit_without_a_tag_drops_the_other(repository: Repository, lake: Lake) -> None:
    lake.want("0.3.0", repository.release("0.3.0"))
    commit = repository.commit("next")
    lake.change_release("0.3.0", commit)
    assert "run ./headwater upgrade" in lake.refused("status")
    lake.upgraded("next")
    assert not re.search("^commit", lake.settings.read_text(), re.MULTILINE)
    assert lake.run("status").stdout == f"next status in {lake.folder}\n"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("name: lake\nrepository: /x\n", "release: found '', expected a number such as 0.3.0, or a commit"),
        ("release: 0.3.0\nrepository: /x\ncommit: 12\n", "commit: found '12', expected 40 digits"),
        (f"release: 0.3.0\nrepository: /x\ncommit: {'0' * 40}\n", "commit_of: found '', expected 0.3.0"),
        ("release: 0.3.0\nrepository: /x\n", "commit: found nothing, expected the commit of release 0.3.0"),
        ("release: 0.3.0\n", "repository: found '', expected the git address"),
        ("release: 0.3.0\nrepository: --upload-pack=x\n", "repository: found '--upload-pack=x', expected the git"),
    ],
)
def test_a_field_that_is_missing_or_wrong_is_named(lake: Lake, settings: str, said: str) -> None:
    lake.settings.write_text(settings)
    assert said in lake.refused("status")


def test_a_release_that_is_not_there_is_named(repository: Repository, lake: Lake) -> None:
    lake.want("0.9.0", repository.release("0.3.0"))
    assert f"release: found 0.9.0, expected a release: {repository.folder} has no tag v0.9.0" in lake.refused()
    assert "has no tag v0.9.0" in lake.refused("upgrade")
    lake.want("0" * 40)
    assert "If nobody pushed this commit yet, then push it" in " ".join(lake.refused().split())


def test_a_repository_that_does_not_answer_is_named(lake: Lake, tmp_path: Path) -> None:
    lake.repository = str(tmp_path / "nowhere")
    lake.want("0.3.0", "0" * 40)
    assert f"repository: found no answer from {tmp_path}/nowhere, expected a git repository" in lake.refused()


def test_without_git_or_python_it_says_what_to_install(repository: Repository, lake: Lake, tmp_path: Path) -> None:
    lake.want("0.3.0", repository.release("0.3.0"))
    said = lake.refused(PATH=path_without("git", tmp_path / "no-git"))
    assert "git: found none, expected it (Debian, Ubuntu: apt-get install git" in said
    old = path_without("python3", tmp_path / "old-python")
    (Path(old) / "python3").write_text("#!/bin/sh\n[ $1 = --version ] && echo Python 3.9.2\n")
    (Path(old) / "python3").chmod(0o755)
    said = lake.refused(PATH=old, HOME=str(tmp_path))
    assert "Python: found Python 3.9.2, expected Python 3.11 or 3.12. Debian 12" in said


def test_it_speaks_before_it_fetches(repository: Repository, lake: Lake, tmp_path: Path) -> None:
    lake.want("0.3.0", repository.release("0.3.0"))
    waiting, errors = tmp_path / "wait", tmp_path / "errors"
    waiting.touch()
    path = instead_of("git", tmp_path / "bin", f'while [ -e {waiting} ]; do sleep 0.05; done\nexec "$REAL" "$@"\n')
    with lake.start("status", errors=errors, PATH=path) as process:
        try:
            wait_until("the first line", lambda: errors.read_text().endswith("\n"))
            assert "fetching it from" in errors.read_text()
        finally:
            waiting.unlink()
    assert process.returncode == STATUS


def test_a_fetch_that_was_killed_starts_over(repository: Repository, lake: Lake, tmp_path: Path) -> None:
    commit = repository.release("0.3.0")
    lake.want("0.3.0", commit)
    kill = 'case "$*" in *" fetch --quiet "*) "$REAL" "$@"; kill -9 $PPID;; *) exec "$REAL" "$@";; esac\n'
    assert lake.run(PATH=instead_of("git", tmp_path / "bin", kill)).returncode < 0
    assert not (lake.home / commit).exists()
    assert lake.run().returncode == STATUS
    assert sorted(path.name for path in lake.home.iterdir()) == [f".{commit}.lock", commit]


def test_a_set_up_that_failed_or_was_killed_starts_over(repository: Repository, lake: Lake) -> None:
    lake.want("0.3.0", repository.release("0.3.0"))
    fail = lake.setups.with_suffix(".fail")
    fail.touch()
    done = lake.run()
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.endswith("no space left\n")
    fail.unlink()
    assert lake.run().returncode == STATUS
    assert lake.setup_runs == 2


def test_a_python_that_is_gone_is_set_up_again(repository: Repository, lake: Lake) -> None:
    commit = repository.release("0.3.0")
    lake.want("0.3.0", commit)
    lake.run()
    stamp = lake.home / commit / ".venv" / "stamp"
    stamp.touch()
    python = lake.home / commit / ".venv" / "bin" / "python"
    python.unlink()
    python.symlink_to("/nowhere/python3.11")
    assert lake.run().returncode == STATUS
    assert lake.setup_runs == 2
    assert not stamp.exists()


def test_two_at_once_set_up_one_release_once(repository: Repository, lake: Lake, tmp_path: Path) -> None:
    lake.want("0.3.0", repository.release("0.3.0"))
    wait = lake.setups.with_suffix(".wait")
    wait.touch()
    first, second = tmp_path / "first", tmp_path / "second"
    with lake.start("status", errors=first) as one, lake.start("status", errors=second) as two:
        try:
            wait_until("both", lambda: "Waiting for another run" in first.read_text() + second.read_text())
            wait_until("the set-up", lambda: lake.setup_runs == 1)
        finally:
            wait.unlink()
    assert (one.returncode, two.returncode) == (STATUS, STATUS)
    assert lake.setup_runs == 1


def test_a_hook_of_git_leaves_the_users_repository_alone(repository: Repository, lake: Lake, tmp_path: Path) -> None:
    users = Repository(tmp_path / "users")
    head = users.commit("mine")
    lake.want("0.3.0", repository.release("0.3.0"))
    own = str(users.folder / ".git")
    done = lake.run(GIT_DIR=own, GIT_INDEX_FILE=f"{own}/index", GIT_WORK_TREE=str(users.folder))
    assert done.returncode == STATUS
    assert users.git("rev-parse", "HEAD") == head
    assert users.git("status", "--porcelain") == ""
    assert users.git("remote") == ""
