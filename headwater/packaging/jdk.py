"""The JDK of this machine."""

import os
import shutil
from pathlib import Path

from headwater.errors import UserError


def java() -> str:
    """Return the path of ``java``: that of JAVA_HOME, else of the PATH. Raises ``UserError`` when there is none."""
    home = os.environ.get("JAVA_HOME")
    executable = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if executable is None or not Path(executable).exists():
        raise UserError("Java is missing: install a JDK 17 (Debian and Ubuntu: apt-get install openjdk-17-jdk)")
    return executable
