"""Running Python in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent


def run_python(*arguments: str, **environment: str) -> str:
    """Run the same interpreter in the project's root and return what it printed.

    *environment* is added to this process's own. Raises :class:`subprocess.CalledProcessError`.
    """
    done = subprocess.run(
        [sys.executable, *arguments],
        check=True,
        cwd=_ROOT,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    return done.stdout
