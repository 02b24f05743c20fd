"""The process of the local AWS, which ``rig.local_aws.daemon`` starts, finds and ends.

python -m rig.local_aws.serve FOLDER
"""

import json
import os
import shutil
import signal
import sys
import threading
from dataclasses import asdict
from pathlib import Path

import psutil

from headwater import private_files
from headwater.folder_lock import claim
from rig.local import aws
from rig.local_aws.account import LocalAccount
from rig.local_aws.daemon import Running, description_of, variables_of


def serve(folder: Path) -> None:
    """Serve an account until SIGTERM."""
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    with claim(folder, "a local AWS"), LocalAccount(folder) as account:
        shutil.rmtree(folder, ignore_errors=True)
        private_files.make_private(folder)
        account.start()
        changed = {
            name: value
            for name, value in account.environment().items()
            if name.startswith("AWS_") or os.environ.get(name) != value
        }
        running = Running(os.getpid(), psutil.Process().create_time(), changed)
        aws.write_variables(variables_of(folder), changed)
        described = description_of(folder).with_suffix(".part")
        private_files.write(described, json.dumps(asdict(running)))
        described.rename(description_of(folder))
        ended.wait()


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
