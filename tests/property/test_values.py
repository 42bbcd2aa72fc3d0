"""Times, ids and checks: what goes in comes out, what cannot be kept is refused by name."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statebackend import Cost, EventKind, InvalidValue, PlanItem, Producer
from statebackend.values import ids
from statebackend.values.ids import check_session_id, is_session_id
from statebackend.values.timestamps import from_text, normalize, to_text
from statebackend.values.validation import (
    MAX_INTEGER,
    check_cost,
    check_integer,
    check_payload,
    check_plan_item,
    check_producer,
    check_text,
    check_word,
)
from tests.property import strategies

BASE32 = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
session_ids = st.builds(
    lambda first, rest: first + rest,
    st.sampled_from("01234567"),
    st.text(BASE32, min_size=25, max_size=25),
)
# Anything that is not of the right type.
foreign = st.one_of(st.none(), st.binary(), st.lists(st.integers(), max_size=2), st.floats())


@given(strategies.moments)
def test_time_survives_as_utc_milliseconds(moment: datetime) -> None:
    """The stored text is of one length, says the same instant, and is read back equal."""
    kept = normalize("timestamp", moment)
    text = to_text(kept)
    assert len(text) == len("2026-01-31T23:59:59.123Z")
    assert timedelta(0) <= moment - kept < timedelta(milliseconds=1)
    assert from_text(text) == kept
    assert kept.tzinfo is UTC


@given(strategies.moments, strategies.moments)
def test_stored_times_sort_as_the_instants_do(one: datetime, other: datetime) -> None:
    """The text of the earlier instant is never the greater one."""
    first, second = sorted([normalize("t", one), normalize("t", other)])
    assert to_text(first) <= to_text(second)


@given(st.text(max_size=30))
def test_foreign_time_is_handed_out_as_it_is(text: str) -> None:
    """What is not in the stored form comes back as the very text."""
    read = from_text(text)
    assert read == text if isinstance(read, str) else to_text(read) == text


@given(st.datetimes())
def test_naive_time_is_refused(moment: datetime) -> None:
    """A time without a zone could be any instant."""
    with pytest.raises(InvalidValue) as caught:
        normalize("timestamp", moment)
    assert caught.value.field == "timestamp"


@given(session_ids)
def test_session_id_is_accepted_and_nothing_near_it(session_id: str) -> None:
    """Lower case, another length and letters that are not in the alphabet are refused."""
    assert check_session_id(session_id) == session_id
    bad = [session_id[1:], session_id + "0", "8" + session_id[1:], session_id[:-1] + "I"]
    bad += [session_id + "\n", f"../{session_id[3:]}"]
    if session_id.lower() != session_id:
        bad.append(session_id.lower())
    for one in bad:
        with pytest.raises(InvalidValue):
            check_session_id(one)


@given(st.one_of(st.text(max_size=30), foreign))
def test_only_canonical_ids_are_accepted(value: object) -> None:
    """Whatever is accepted is 26 characters of the alphabet, so it cannot leave the folder."""
    try:
        accepted = check_session_id(value)  # type: ignore[arg-type]
    except InvalidValue:
        return
    assert set(accepted) <= set(BASE32)
    assert len(accepted) == 26


@given(strategies.ulid_moments, st.integers(2, 50))
def test_new_ids_carry_their_time_and_ascend(moment: datetime, count: int) -> None:
    """Ids of one moment are canonical, different, ascending, and say that moment."""
    moment = normalize("started_at", moment)
    made = [ids.new_session_id(moment) for _ in range(count)]
    assert made == sorted(set(made))
    for one in made:
        assert is_session_id(one)
        assert abs(ids.session_time(one) - moment) <= timedelta(milliseconds=1)


@given(strategies.ulid_moments, strategies.ulid_moments)
def test_time_prefixes_sort_as_the_moments_do(one: datetime, other: datetime) -> None:
    """Filtering by time can go by the names alone."""
    first, second = sorted([one, other])
    assert ids.time_prefix(first) <= ids.time_prefix(second)
    assert ids.new_session_id(first).startswith(ids.time_prefix(first))


@given(strategies.texts)
def test_text_that_can_be_kept_is_accepted(text: str) -> None:
    """Every text of Unicode characters but NUL."""
    assert check_text("field", text) is text


@given(strategies.bad_texts | foreign)
def test_text_that_cannot_be_kept_is_refused(text: object) -> None:
    """Empty, with a NUL or half a surrogate pair, or no text at all; the field is named."""
    with pytest.raises(InvalidValue) as caught:
        check_text("field", text)  # type: ignore[arg-type]
    assert caught.value.field == "field"


@given(st.integers() | foreign | st.booleans())
def test_integers_are_those_that_sqlite_keeps(value: object) -> None:
    """0 … 2^63-1, and no boolean."""
    fits = type(value) is int and 0 <= value <= MAX_INTEGER
    try:
        assert check_integer("field", value) == value  # type: ignore[arg-type]
    except InvalidValue:
        assert not fits
    else:
        assert fits


@given(strategies.payloads, st.sampled_from([bytes, bytearray, memoryview]))
def test_payload_is_kept_byte_for_byte(payload: bytes, kind: type) -> None:
    """From every kind of buffer."""
    kept = check_payload(kind(payload))
    assert (kept, type(kept)) == (payload, bytes)


@given(strategies.costs)
def test_good_costs_are_accepted_unchanged(cost: Cost) -> None:
    """The very object comes back."""
    assert check_cost(cost) is cost


@given(st.one_of(st.floats(), st.integers(), st.booleans(), st.none(), st.text(max_size=3)))
def test_amounts_are_finite_and_not_negative(amount: object) -> None:
    """NaN, infinities, negative ones and what is no number are refused by name."""
    cost = Cost(
        provider_name="p",
        model_id="m",
        input_tokens=0,
        output_tokens=0,
        cost_usd=amount,  # type: ignore[arg-type]
    )
    number = isinstance(amount, int | float) and not isinstance(amount, bool)
    try:
        check_cost(cost)
    except InvalidValue:
        assert not (number and amount >= 0 and amount < math.inf)  # type: ignore[operator]
    else:
        assert number


@given(strategies.plan_items)
def test_good_plan_items_are_accepted_unchanged(item: PlanItem) -> None:
    """The very object comes back."""
    assert check_plan_item(item) is item


@given(st.text(max_size=20).filter(lambda word: word not in set(EventKind)))
def test_words_outside_a_vocabulary_are_refused(word: str) -> None:
    """Also those that differ in case or by a space."""
    for one in (word, "Message", "message ", "", "KIND_UNSPECIFIED", "render"):
        with pytest.raises(InvalidValue) as caught:
            check_word("kind", EventKind, one)
        assert caught.value.field == "kind"


@given(st.sampled_from(EventKind), strategies.plug_ins)
def test_plug_ins_may_write_every_kind(kind: EventKind, producer: Producer) -> None:
    """The seven categories are free to choose the kind."""
    assert check_producer(kind, producer) is producer


@given(st.sampled_from(EventKind), strategies.texts, strategies.texts)
def test_kernel_writes_only_what_is_reserved_for_it(
    kind: EventKind, name: str, version: str
) -> None:
    """Prompts as the user, plans and their outcome as the kernel, nothing else."""
    reserved = {("message", "user"), ("plan", "kernel"), ("apply", "kernel")}
    for one in (name, "user", "kernel"):
        try:
            check_producer(kind, Producer("kernel", one, version))
        except InvalidValue:
            assert (kind, one) not in reserved
        else:
            assert (kind, one) in reserved
