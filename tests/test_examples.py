"""The examples in docstrings run as they are written."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

from statebackend import Session, StateBackend


@pytest.mark.parametrize(
    "documented", [StateBackend, Session, Session.batch], ids=lambda one: str(one.__qualname__)
)
def test_the_example_runs(
    documented: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In an empty folder, with the results shown."""
    monkeypatch.chdir(tmp_path)
    finder = doctest.DocTestFinder(recurse=False)
    examples = [test for test in finder.find(documented, globs={}) if test.examples]
    assert examples
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for test in examples:
        runner.run(test)
    assert runner.summarize(verbose=False).failed == 0
