#!/bin/sh
# Runs the release of Headwater that headwater.yaml names, with the arguments given. The first run fetches the release
# from the git repository in headwater.yaml, verifies its commit, and sets it up in a cache, which takes minutes. Later
# runs need no network. The cache is ~/.cache/headwater, or the folder in HEADWATER_HOME. You may delete a release from
# the cache, unless a local AWS runs from it.
set -eu

say() { printf '%s\n' "$*" >&2; }
fail() {
    say "Error: $*"
    exit 2
}

folder=$(cd "$(dirname "$0")" && pwd)
settings=$folder/headwater.yaml
[ -f "$settings" ] || fail "found no $settings, expected it beside this script"

# Each field is one line. The shell itself reads it, because this runs before every command.
release="" commit="" commit_of="" repository=""
while IFS= read -r line || [ -n "$line" ]; do
    value=${line#*:}
    value=${value%% #*}
    value=${value#"${value%%[! ]*}"}
    value=${value%"${value##*[! ]}"}
    value=${value#[\"\']}
    value=${value%[\"\']}
    case $line in
    release:*) release=$value ;;
    commit:*) commit=$value ;;
    commit_of:*) commit_of=$value ;;
    repository:*) repository=$value ;;
    esac
done <"$settings"

is_commit() {
    case $1 in *[!0-9a-f]*) return 1 ;; esac
    [ ${#1} -eq 40 ]
}
case $release in
"" | *[!0-9a-z.]*) fail "$settings: release: found '$release', expected a number such as 0.3.0, or a commit" ;;
esac
case $repository in
"" | -*) fail "$settings: repository: found '$repository', expected the git address of Headwater" ;;
./* | ../*) repository=$folder/$repository ;;
esac

tag=v$release
if is_commit "$release"; then tag=""; fi

# Prints the commit of a tag of the repository; nothing if the repository has no such tag.
commit_at() {
    answer=$(git ls-remote "$repository" "refs/tags/$1" "refs/tags/$1^{}") ||
        fail "$settings: repository: found no answer from $repository, expected a git repository: check the address and" \
            "the network. Releases in the cache run without a network."
    # An annotated tag has a second line, which names the commit.
    printf '%s\n' "$answer" | sed -n '$s/[[:space:]].*//p'
}

refuse_moved() {
    fail "$settings: commit: found $commit, expected $1, the commit of $tag in $repository: somebody moved the release." \
        "Do not run it. If you trust it, delete the lines \`commit\` and \`commit_of\`, then run ./headwater upgrade."
}

refuse_unknown() {
    [ -n "$1" ] ||
        fail "$settings: release: found $release, expected a release: $repository has no tag $tag. Push the tag there, or" \
            "write another address into \`repository\`."
}

# In a git hook, these variables name the user's repository.
forget_repository() { unset $(git rev-parse --local-env-vars); }

needs_git() {
    command -v git >/dev/null 2>&1 ||
        fail "git: found none, expected it (Debian, Ubuntu: apt-get install git; macOS: brew install git)"
    forget_repository
}

home=${HEADWATER_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/headwater}

# Another user who can write there could change the programs that run here.
secure_home() {
    [ -d "$home" ] || (umask 077 && mkdir -p "$home") || \
        fail "$home: could not make this folder: make it, or name another cache by HEADWATER_HOME"
    [ -n "$(find -H "$home" -prune -user "$(id -u)" ! -perm -020 ! -perm -002)" ] ||
        fail "$home: found $(ls -ld "$home"), expected a folder of yours that no one else can write to: mend it by" \
            "chown and chmod go-w, or name another cache by HEADWATER_HOME"
}

use_commit() {
    commit=$1
    checkout=$home/$commit
    verified=$checkout/.git/verified-${tag:-commit}
    ready=$checkout/.venv/ready
}
is_ready() { [ -f "$verified" ] && [ -f "$ready" ] && [ -x "$checkout/.venv/bin/python" ]; }

# Finds a Python for the release. The same Python takes the lock below, for which sh has no command.
find_python() {
    local_bin=${XDG_BIN_HOME:-${HOME:-}/.local/bin}
    for python in python3.11 python3.12 "$local_bin/python3.11" "$local_bin/python3.12" python3 python; do
        "$python" -c "import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))" 2>/dev/null && return
    done
    fail "Python: found $(python3 --version 2>/dev/null || echo none), expected Python 3.11 or 3.12. Debian 12, Ubuntu" \
        "24.04: apt-get install python3 python3-venv; macOS: brew install python@3.11; others: apt-get install pipx," \
        "then pipx run uv python install 3.12"
}

# Only one set-up of a release runs at a time. Its programs inherit the lock, so after a kill, the next set-up waits for
# those that still run.
lock() {
    exec 8>"$home/.$commit.lock"
    "$python" -c "import fcntl; fcntl.flock(8, fcntl.LOCK_EX | fcntl.LOCK_NB)" 2>/dev/null && return
    say "Waiting for another run to set up this release"
    "$python" -c "import fcntl; fcntl.flock(8, fcntl.LOCK_EX)"
}

verify_tag() {
    [ -n "$tag" ] || return 0
    found=$(commit_at "$tag")
    refuse_unknown "$found"
    [ "$found" = "$commit" ] || refuse_moved "$found"
}

# An unfinished fetch has another name, and the next fetch starts over.
fetch() {
    partial=$home/.$commit.partial
    rm -rf "$partial"
    mkdir -m 700 "$partial"
    git init --quiet "$partial"
    git -C "$partial" remote add origin "$repository"
    git -C "$partial" fetch --quiet --depth 1 --no-tags origin "${tag:+refs/tags/$tag:refs/tags/}${tag:-$commit}" ||
        fail "$settings: release: found $release, expected a release that $repository has: the fetch failed. If nobody" \
            "pushed this commit yet, then push it, or write another address into \`repository\`."
    git -C "$partial" checkout --quiet --detach FETCH_HEAD
    found=$(git -C "$partial" rev-parse HEAD)
    [ "$found" = "$commit" ] || fail "$settings: commit: found $commit, expected $found, which $repository sent"
    mv "$partial" "$checkout"
}

# Files of other programs, or another commit, must not run as this release. Files that git ignores are not compared.
refuse_changed() {
    # Git must not write to the index, because other runs read it.
    found=$(forget_repository && git -C "$checkout" --no-optional-locks -c core.fsmonitor=false status --porcelain=v2 \
        --branch --untracked-files=normal) || found="no repository that git can read"
    [ "$found" != "# branch.oid $commit
# branch.head (detached)" ] || return 0
    fail "$checkout: found $found
expected commit $commit without a change. Delete this folder, then run the command again, which fetches it again."
}

fetch_verified() {
    if ! [ -f "$verified" ]; then
        verify_tag
        [ -d "$checkout" ] || fetch
    fi
    refuse_changed
    : >"$verified"
}

# Sets up a verified checkout. The caller holds the lock; this releases it.
set_up() {
    if ! is_ready; then
        rm -f "$ready"
        # A virtual environment whose Python is gone is made again.
        [ -x "$checkout/.venv/bin/python" ] || rm -f "$checkout/.venv/stamp"
        "$checkout/tools/setup" >&2
        : >"$ready"
    fi
    exec 8>&-
}

prepare() {
    say "Headwater $release is not set up yet: fetching it from $repository into $checkout (once, takes minutes)"
    needs_git
    find_python
    lock
    is_ready || fetch_verified
    set_up
}

write_commit() {
    # The copy has the file's mode. It replaces the file in one step, so a full disk or a kill leaves the former text.
    cp -p "$settings" "$settings.new"
    sed '/^commit:/d; /^commit_of:/d' "$settings" >"$settings.new"
    # The last line may lack its line break.
    [ -z "$(tail -c 1 "$settings.new")" ] || echo >>"$settings.new"
    if [ -n "$tag" ]; then printf 'commit: %s\ncommit_of: %s\n' "$commit" "$release" >>"$settings.new"; fi
    mv "$settings.new" "$settings"
}

# Records the commit of a release whose number a person has changed, and sets the release up. While the number is the
# same, the commit stays. Then the release converts the folder's files, this script among them.
upgrade() {
    [ $# -eq 0 ] || fail "upgrade: found $*, expected no argument: it reads the release from $settings"
    needs_git
    if [ -z "$tag" ]; then
        new=$release
    else
        say "Looking for $tag in $repository"
        new=$(commit_at "$tag")
        refuse_unknown "$new"
        # A commit without commit_of counts as the commit of this release.
        if [ -n "$commit" ] && [ "${commit_of:-$release}" = "$release" ]; then
            [ "$new" = "$commit" ] || refuse_moved "$new"
        fi
    fi
    recorded="$commit $commit_of"
    use_commit "$new"
    find_python
    lock
    fetch_verified
    if [ -z "$tag" ]; then
        [ "$recorded" = " " ] || write_commit
        say "Fetched and verified commit $release. $settings needs no \`commit\` beside it"
    elif [ "$recorded" = "$commit $release" ]; then
        say "$settings has the commit of release $release already: $commit"
    else
        write_commit
        say "Fetched and verified release $release, and recorded its commit $commit in $settings"
    fi
    is_ready || say "Setting up release $release in $checkout (once, takes minutes)"
    set_up
}

secure_home
if [ "${1:-}" = upgrade ]; then
    shift
    upgrade "$@"
    exec "$checkout/.venv/bin/headwater" upgrade --folder "$folder"
fi

if [ -z "$tag" ]; then
    [ -z "$commit" ] ||
        fail "$settings: commit: found $commit, expected none beside a release that is a commit: run ./headwater upgrade"
    commit=$release
else
    [ -n "$commit" ] ||
        fail "$settings: commit: found nothing, expected the commit of release $release: run ./headwater upgrade"
    is_commit "$commit" || fail "$settings: commit: found '$commit', expected 40 digits out of 0-9 and a-f"
    [ "$commit_of" = "$release" ] ||
        fail "$settings: commit_of: found '$commit_of', expected $release, as in \`release\`: run ./headwater upgrade"
fi
use_commit "$commit"
if is_ready; then refuse_changed; else prepare; fi
exec "$checkout/.venv/bin/headwater" "$@"
