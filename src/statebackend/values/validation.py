"""Checks of all input: a typed error names the field before anything is written."""

from __future__ import annotations

import math
import os
from enum import StrEnum
from typing import TypeVar

from statebackend.errors import InvalidValue
from statebackend.values.recorded import (
    Cost,
    EventKind,
    PlanDecision,
    PlanItem,
    Producer,
    ProducerCategory,
)

MAX_INTEGER = 2**63 - 1
_Word = TypeVar("_Word", bound=StrEnum)
_RESERVED = {
    (EventKind.MESSAGE, "user"),
    (EventKind.PLAN, "kernel"),
    (EventKind.APPLY, "kernel"),
}


def check_text(field: str, value: str, *, empty: bool = False) -> str:
    """Return *value* if SQLite can keep it as text and hand it back unchanged."""
    if type(value) is str and value.isascii() and value and "\0" not in value:
        return value
    if not isinstance(value, str):
        raise InvalidValue(field, f"must be text, not {type(value).__name__}")
    if not value and not empty:
        raise InvalidValue(field, "must not be empty")
    if "\0" in value:
        raise InvalidValue(field, "holds a NUL character")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidValue(
            field, f"holds a lone surrogate at position {error.start}, which is not text"
        ) from error
    return value


def check_integer(field: str, value: int) -> int:
    """Return *value* if it is an integer of 0 … 2^63-1."""
    if type(value) is int and 0 <= value <= MAX_INTEGER:
        return value
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidValue(field, f"must be an integer, not {type(value).__name__}")
    if not 0 <= value <= MAX_INTEGER:
        raise InvalidValue(field, "must be 0 … 2^63-1")
    return value


def check_payload(value: bytes) -> bytes:
    """Return the payload as bytes; text is refused, since its encoding is the producer's choice."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    raise InvalidValue("payload", f"must be bytes, not {type(value).__name__}")


def check_word(field: str, words: type[_Word], value: str) -> _Word:
    """Return the member of a closed vocabulary that *value* names."""
    if isinstance(value, words):
        return value
    try:
        return words(value)
    except ValueError:
        known = ", ".join(words)
        raise InvalidValue(field, f"{value!r} is not one of: {known}") from None


def check_producer(kind: EventKind, producer: Producer) -> Producer:
    """Return *producer* if it may write an event of this *kind* (SB-14, SB-41)."""
    if not isinstance(producer, Producer):
        raise InvalidValue("producer", f"must be a Producer, not {type(producer).__name__}")
    category = check_word("producer.category", ProducerCategory, producer.category)
    check_text("producer.name", producer.name)
    check_text("producer.version", producer.version)
    if category is ProducerCategory.KERNEL and (kind, producer.name) not in _RESERVED:
        raise InvalidValue(
            "producer",
            f"the reserved kernel producer {producer.name!r} cannot write a {kind} event; "
            "'user' writes prompts, 'kernel' writes plan and apply",
        )
    return producer


def check_cost(cost: Cost) -> Cost:
    """Return *cost* if its numbers can be stored exactly as given (SB-16)."""
    if not isinstance(cost, Cost):
        raise InvalidValue("cost", f"must be a Cost or None, not {type(cost).__name__}")
    check_text("cost.provider_name", cost.provider_name)
    check_text("cost.model_id", cost.model_id)
    check_integer("cost.input_tokens", cost.input_tokens)
    check_integer("cost.output_tokens", cost.output_tokens)
    check_integer("cost.cache_write_tokens", cost.cache_write_tokens)
    check_integer("cost.cache_read_tokens", cost.cache_read_tokens)
    check_amount("cost.cost_usd", cost.cost_usd)
    return cost


def check_amount(field: str, value: float) -> float:
    """Return *value* if it is a finite, non-negative number."""
    if type(value) is float and 0.0 <= value < math.inf:
        return value
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise InvalidValue(field, f"must be a number, not {type(value).__name__}")
    try:
        finite = math.isfinite(value)
    except OverflowError:
        finite = False
    if not finite or value < 0:
        raise InvalidValue(field, f"must be finite and not negative, not {value!r:.40}")
    return value


def check_path(field: str, value: str | os.PathLike[str]) -> str:
    """Return *value* as the text of a path."""
    try:
        text = os.fspath(value)
    except TypeError as error:
        raise InvalidValue(field, f"must be a path, not {type(value).__name__}") from error
    return check_text(field, text)


def check_plan_item(item: PlanItem) -> PlanItem:
    """Return *item* if it can be stored (SB-17)."""
    if not isinstance(item, PlanItem):
        raise InvalidValue("items", f"must hold PlanItem objects, not {type(item).__name__}")
    check_text("item.turn_id", item.turn_id, empty=True)
    check_text("item.tool_call_id", item.tool_call_id, empty=True)
    check_text("item.provider_name", item.provider_name)
    check_text("item.tool_name", item.tool_name)
    check_text("item.decided_by", item.decided_by)
    check_word("item.decision", PlanDecision, item.decision)
    return item
