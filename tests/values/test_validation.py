"""Checks on everything that goes in."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import pytest

from statebackend import EventKind, InvalidValue, PlanDecision, Producer
from statebackend.values import validation
from tests.session_files import TOOL, cost, item


class Word(StrEnum):
    """A vocabulary."""

    YES = "yes"


class Text(str):
    """A text of another type, as frameworks have them."""

    __slots__ = ()


@pytest.mark.parametrize("text", ["a", "ü", "👩‍💻", "a\nb", Text("x"), Word.YES])
def test_text_passes_unchanged(text: str) -> None:
    """What SQLite can hold and hand back is returned."""
    assert validation.check_text("x", text) is text


@pytest.mark.parametrize("text", ["", "a\0", "ü\0", "\udc80", "x\ud800y", 1, None, b"x", Text("")])
def test_what_is_no_text_is_refused(text: Any) -> None:
    """Empty, NUL, half a surrogate pair, or another type."""
    with pytest.raises(InvalidValue) as caught:
        validation.check_text("x", text)
    assert caught.value.field == "x"


def test_empty_text_can_be_allowed() -> None:
    """Where a name is optional."""
    assert validation.check_text("x", "", empty=True) == ""


@pytest.mark.parametrize("value", [0, 1, 2**63 - 1])
def test_integers_that_sqlite_holds_pass(value: int) -> None:
    """From nothing to the largest."""
    assert validation.check_integer("x", value) == value


@pytest.mark.parametrize("value", [-1, 2**63, 1.0, "1", True, None])
def test_other_integers_are_refused(value: Any) -> None:
    """Negative, too large, or not an integer."""
    with pytest.raises(InvalidValue):
        validation.check_integer("x", value)


@pytest.mark.parametrize("value", ["no", "YES", "", 1, None, [], PlanDecision.ASK])
def test_a_word_outside_the_vocabulary_is_refused(value: Any) -> None:
    """The message lists the words that are known."""
    with pytest.raises(InvalidValue, match="yes"):
        validation.check_word("x", Word, value)


def test_a_word_becomes_its_member() -> None:
    """Given as text or as the member."""
    assert validation.check_word("x", Word, "yes") is Word.YES
    assert validation.check_word("x", Word, Word.YES) is Word.YES


@pytest.mark.parametrize("value", [None, "tool", {}, ("tool", "x", "1"), []])
def test_a_producer_is_a_producer(value: Any) -> None:
    """Nothing else stands for one."""
    with pytest.raises(InvalidValue) as caught:
        validation.check_producer(EventKind.APPLY, value)
    assert caught.value.field == "producer"


def test_a_good_producer_passes() -> None:
    """It is returned as it is."""
    assert validation.check_producer(EventKind.APPLY, TOOL) is TOOL
    kernel = Producer("kernel", "kernel", "1")
    assert validation.check_producer(EventKind.PLAN, kernel) is kernel


@pytest.mark.parametrize("value", [{}, 1, "0.5", None])
def test_a_cost_is_a_cost(value: Any) -> None:
    """Nothing else stands for one."""
    with pytest.raises(InvalidValue) as caught:
        validation.check_cost(value)
    assert caught.value.field == "cost"


def test_a_good_cost_and_a_good_item_pass() -> None:
    """They are returned as they are."""
    spend, planned = cost(), item()
    assert validation.check_cost(spend) is spend
    assert validation.check_plan_item(planned) is planned


def test_a_plan_item_is_a_plan_item() -> None:
    """Nothing else stands for one."""
    with pytest.raises(InvalidValue) as caught:
        validation.check_plan_item({"tool_name": "x"})  # type: ignore[arg-type]
    assert caught.value.field == "items"
