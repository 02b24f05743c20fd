"""What must be so before any test module is imported."""

import os
import sys
from pathlib import Path

# Importing aws_cdk starts the first `node` on the PATH: the one of the virtual environment, whatever the machine has.
# An old one takes minutes for what that one does in seconds.
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
