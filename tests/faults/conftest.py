"""The recorder, compiled once for each worker."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.recording import NoCompilerError, compile_recorder


@pytest.fixture(scope="session")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the compiled recorder, or skip where there can be none.

    With a compiler there, a recorder that does not compile is an error, in CI and elsewhere.
    """
    try:
        return compile_recorder(tmp_path_factory.mktemp("recorder"))
    except NoCompilerError as error:
        pytest.skip(str(error))
