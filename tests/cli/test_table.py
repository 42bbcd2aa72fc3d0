"""Tables in a pipe."""

from __future__ import annotations

import pytest

from statebackend.cli.table import TableCell, TableColumn, width, write_table


def test_columns_are_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    """Cells of one column begin, or end, at one place; no line ends in blanks."""
    columns = (TableColumn("name"), TableColumn("count", right=True), TableColumn("note"))
    write_table(columns, [("ab", "1", ""), ("a", "1,000", "x")])
    assert capsys.readouterr().out == "NAME  COUNT  NOTE\nab        1\na     1,000  x\n"


def test_an_optional_column_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    """A column that is empty everywhere is not shown if it is optional."""
    columns = (TableColumn("name"), TableColumn("note", optional=True))
    write_table(columns, [("ab", "")])
    write_table(columns, [("ab", "")], total=("x", "y"))
    assert capsys.readouterr().out == "NAME\nab\nNAME  NOTE\nab\nx     y\n"


def test_stored_text_is_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    """A cell cannot hold a line end or a control sequence."""
    write_table((TableColumn("a"),), [(TableCell("x\n\x1b[2J"),)])
    assert capsys.readouterr().out == "A\nx\\x0a\\x1b[2J\n"


def test_wide_characters_take_two_columns() -> None:
    """East Asian characters count twice, combining marks not at all."""
    assert (width("ab"), width("漢字"), width("e\u0301")) == (2, 4, 1)
