"""``tree``, ``cost``, ``plan``, ``producers`` and ``replay``."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from statebackend import StateBackend
from tests.cli import samples
from tests.cli.samples import START, Cli, parsed, parsed_lines


@pytest.fixture
def family(backend: StateBackend) -> tuple[str, str, str]:
    """Make a parent with one child, and a session whose parent is not there."""
    parent = samples.full(backend, profile="a", started_at=START)
    child = samples.full(
        backend,
        profile="b",
        parent_session_id=parent,
        depth=1,
        started_at=START + timedelta(hours=1),
    )
    orphan = samples.full(
        backend,
        profile="b",
        parent_session_id="01K9AAAAAAAAAAAAAAAAAAAAAA",
        depth=1,
        started_at=START + timedelta(hours=2),
    )
    return parent, child, orphan


# -- tree ------------------------------------------------------------------------------------------


def test_tree_as_json(cli: Cli, family: tuple[str, str, str]) -> None:
    """A flat array in tree order; each node has its level, marks, own and inclusive sums."""
    parent, child, orphan = family
    nodes = parsed(cli("tree", "--json"))
    assert [(node["session_id"], node["level"]) for node in nodes] == [
        (orphan, 0),
        (parent, 0),
        (child, 1),
    ]
    assert [node["missing_parent"] for node in nodes] == [True, False, False]
    assert (nodes[1]["own"]["cost_usd"], nodes[1]["inclusive"]["cost_usd"]) == (0.25, 0.5)
    assert nodes[1]["inclusive"]["unpriced_rows"] == 2


def test_tree_for_people(cli: Cli, family: tuple[str, str, str]) -> None:
    """A child stands indented below its parent, a missing parent is named."""
    parent, child, orphan = family
    _, first, second, third = cli("tree").stdout.splitlines()
    assert first.startswith(orphan)
    assert "parent 01K9AAAAAAAAAAAAAAAAAAAAAA is missing" in first
    assert second.startswith(parent)
    assert "$0.2500 + 1 unpriced  $0.5000 + 2 unpriced" in second
    assert third.startswith(f"  {child}")


def test_tree_of_one(cli: Cli, family: tuple[str, str, str]) -> None:
    """With an id only what is below it is shown."""
    parent, child, _ = family
    nodes = parsed(cli("tree", parent, "--json"))
    assert [node["session_id"] for node in nodes] == [parent, child]


def test_a_partial_tree(cli: Cli, backend: StateBackend, family: tuple[str, str, str]) -> None:
    """A file that cannot be read is named on stderr, and the exit code is 1."""
    parent, child, _ = family
    samples.damage(backend, child)
    result = cli("tree", parent, "--json")
    assert result.exit_code == 1
    assert [node["session_id"] for node in parsed(result)] == [parent]
    assert f"left out: {child}.sqlite" in result.stderr


def test_a_ring_ends(cli: Cli, backend: StateBackend) -> None:
    """Sessions that are their own ancestors are shown once, and marked."""
    one, two = samples.series(backend, 2)
    for mine, other in ((one, two), (two, one)):
        samples.rewrite(backend, mine, f"UPDATE session_meta SET parent_session_id = '{other}'")
    nodes = parsed(cli("tree", "--json"))
    assert sorted(node["session_id"] for node in nodes) == [one, two]
    assert any(node["ring"] for node in nodes)
    assert "its parents form a ring" in cli("tree").stdout


# -- cost ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["model", "provider", "session", "day", "profile"])
def test_cost_by(cli: Cli, family: tuple[str, str, str], by: str) -> None:
    """Every grouping adds up to the same sums, and every sum counts its unpriced turns."""
    groups = parsed(cli("cost", "--by", by, "--json"))
    assert sum(group["cost_usd"] for group in groups) == 0.75
    assert sum(group["unpriced_rows"] for group in groups) == 3
    assert sum(group["input_tokens"] for group in groups) == 600
    assert all(group["by"] == by and group["key"] for group in groups)


def test_cost_of_a_tree(cli: Cli, family: tuple[str, str, str]) -> None:
    """--tree adds what is below, each session once."""
    parent, child, _ = family
    assert [group["key"] for group in parsed(cli("cost", parent, "--json"))] == [parent]
    groups = parsed(cli("cost", parent, child, "--tree", "--json"))
    assert sorted(group["key"] for group in groups) == [parent, child]


def test_the_table_has_a_total(cli: Cli, family: tuple[str, str, str]) -> None:
    """The last line adds up all others."""
    result = cli("cost", "--by", "profile")
    assert result.stdout.splitlines()[-1].split() == (
        ["total", "6", "600", "60", "18", "30", "$0.7500", "3"]
    )


def test_no_costs(cli: Cli) -> None:
    """Without a ledger row JSON is [], and for people a notice says it."""
    assert cli("cost", "--json").stdout == "[]\n"
    assert cli("cost").stderr == "statebackend: no costs\n"


def test_cost_of_a_damaged_session(
    cli: Cli, backend: StateBackend, family: tuple[str, str, str]
) -> None:
    """A sum over all that lacks a file is partial; for a session named, damage is the error."""
    parent, child, _ = family
    samples.damage(backend, child)
    partial = cli("cost", "--json")
    assert (partial.exit_code, len(parsed(partial))) == (1, 2)
    assert f"left out: {child}.sqlite" in partial.stderr
    named = cli("cost", parent, child, "--json")
    assert (named.exit_code, named.stdout) == (5, "")


# -- plan ------------------------------------------------------------------------------------------


def test_plan(cli: Cli, backend: StateBackend) -> None:
    """The items of a session in order; --decision chooses."""
    session_id = samples.full(backend)
    items = parsed(cli("plan", session_id, "--json"))
    assert [item["decision"] for item in items] == ["allow", "deny"]
    assert items[0] == {
        "sequence": 1,
        "event_sequence": 4,
        "turn_id": "t1",
        "tool_call_id": "call-allow",
        "provider_name": "shell",
        "tool_name": "run",
        "decision": "allow",
        "decided_by": "policy:default",
    }
    denied = parsed(cli("plan", session_id, "--decision", "deny", "--json"))
    assert [item["tool_call_id"] for item in denied] == ["call-deny"]
    assert "shell/run" in cli("plan", session_id).stdout


def test_plan_rules(cli: Cli, family: tuple[str, str, str]) -> None:
    """Over all sessions each rule is counted with each decision."""
    assert parsed(cli("plan", "--rules", "--json")) == [
        {"decided_by": "policy:default", "decision": decision, "count": 3}
        for decision in ("allow", "deny")
    ]
    assert cli("plan", "--rules").stdout.splitlines()[1].split() == ["policy:default", "allow", "3"]


def test_no_plan(cli: Cli, backend: StateBackend) -> None:
    """Without items JSON is []."""
    session_id = samples.empty(backend)
    for arguments in (("plan", session_id), ("plan", "--rules")):
        assert cli(*arguments, "--json").stdout == "[]\n"
        assert cli(*arguments).stderr == "statebackend: no plan items\n"


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("01K9", "--rules"),
        ("--rules", "--decision", "deny"),
        ("01K9", "--decision", "never"),
    ],
)
def test_wrong_plans(cli: Cli, arguments: tuple[str, ...]) -> None:
    """It is an id or --rules, and a decision is one of three."""
    assert cli("plan", *arguments).exit_code == 2


# -- producers -------------------------------------------------------------------------------------


def test_producers_of_one(cli: Cli, backend: StateBackend) -> None:
    """All producers of a session, with their first event."""
    rows = parsed(cli("producers", samples.full(backend), "--json"))
    assert [(row["category"], row["name"], row["first_seen_sequence"]) for row in rows] == [
        ("kernel", "user", 1),
        ("model", "anthropic", 2),
        ("tool", "shell", 5),
    ]


def test_producers_of_all(cli: Cli, family: tuple[str, str, str]) -> None:
    """What a cache must keep: each build once, without the kernel."""
    rows = parsed(cli("producers", "--json"))
    assert [(row["category"], row["name"]) for row in rows] == [
        ("model", "anthropic"),
        ("tool", "shell"),
    ]
    assert cli("producers").stdout.splitlines()[0].split() == ["CATEGORY", "NAME", "VERSION"]


@pytest.mark.parametrize("of_one", [True, False])
def test_missing_producers(
    cli: Cli, backend: StateBackend, tmp_path: Path, *, of_one: bool
) -> None:
    """Only exactly this version counts as installed; something missing is exit code 1."""
    chosen = [samples.full(backend)] if of_one else []
    model = {"category": "model", "name": "anthropic", "version": "2.1.0"}
    installed = tmp_path / "installed.json"
    installed.write_text(json.dumps([model, {**model, "version": "1", "extra": 1}]))
    samples.full(backend)
    result = cli("producers", *chosen, "--installed", str(installed), "--json")
    assert result.exit_code == 1
    assert [row["name"] for row in parsed(result)] == ["shell"]


def test_no_missing_producer(cli: Cli, backend: StateBackend, tmp_path: Path) -> None:
    """If all are there, the exit code is 0 and the array empty."""
    samples.full(backend)
    installed = tmp_path / "installed.json"
    installed.write_text(cli("producers", "--json").stdout)
    result = cli("producers", "--installed", str(installed), "--json")
    assert (result.exit_code, result.stdout) == (0, "[]\n")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff",
        b"{}",
        b"[1]",
        b'[{"category": "tool"}]',
        b'[{"category": "tool", "name": "x", "version": 1}]',
        b"[" * 100_000,
    ],
)
def test_a_wrong_list_of_installed(cli: Cli, tmp_path: Path, content: bytes) -> None:
    """Anything else than such a list is wrong usage that names the file."""
    installed = tmp_path / "installed.json"
    installed.write_bytes(content)
    result = cli("producers", "--installed", str(installed))
    assert result.exit_code == 2
    assert "installed.json" in result.stderr
    assert result.stderr.count("\n") == 1


# -- replay ----------------------------------------------------------------------------------------


def test_replay_as_json_lines(cli: Cli, backend: StateBackend) -> None:
    """Each event in order with its rendered text, and whether the generic renderer did it."""
    events = parsed_lines(cli("replay", samples.full(backend), "--json"))
    assert [event["sequence"] for event in events] == [1, 2, 3, 4, 5]
    assert events[0]["text"] == "do it"
    assert events[0]["fallback"] is True
    assert events[0]["error"] is None


def test_replay_for_people(cli: Cli, backend: StateBackend) -> None:
    """The transcript is that of show."""
    session_id = samples.full(backend)
    assert cli("replay", session_id).stdout == cli("show", session_id, "--events").stdout
