"""The JDK of this machine."""

import os
import shutil
from pathlib import Path

from headwater.errors import UserError


def java(program: str = "java") -> str:
    """Return the path of ``java``, or of another program of the JDK.

    The JDK of JAVA_HOME comes first, then the PATH. Raises UserError if there is no such program.
    """
    home = os.environ.get("JAVA_HOME")
    executable = str(Path(home) / "bin" / program) if home else shutil.which(program)
    if executable is None or not Path(executable).exists():
        raise UserError("Java is missing: install a JDK 17 (Debian and Ubuntu: apt-get install openjdk-17-jdk)")
    return executable
