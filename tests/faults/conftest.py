"""The recorder, compiled once for each worker."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.faults.recording import NoCompilerError, compile_recorder


@pytest.fixture(scope="session")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the compiled recorder, or skip where there can be none."""
    try:
        return compile_recorder(tmp_path_factory.mktemp("recorder"))
    except NoCompilerError as error:
        in_ci = os.environ.get("CI", "").lower() in {"1", "true"}
        if in_ci and shutil.which("cc"):
            pytest.fail(f"skipped in CI although a compiler is there: {error}")
        pytest.skip(str(error))
