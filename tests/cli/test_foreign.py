"""Values that another program stored in place of texts and costs: every command shows them."""

from __future__ import annotations

import json

import pytest

from statebackend import StateBackend
from tests.cli.samples import Cli
from tests.session_files import full, path_of, sql

ODD = {
    "producers": ("name", "version", "category"),
    "events": ("id", "timestamp", "kind", "producer_name", "producer_version", "schema_version"),
    "cost_ledger": ("model_id", "provider_name"),
    "plan_items": ("decided_by", "decision", "turn_id"),
}
COMMANDS = [
    *(("list",), ("tree",), ("producers",), ("plan", "--rules"), ("search", "done")),
    *(("cost", "--by", by) for by in ("model", "provider", "session", "day", "profile")),
    *(("show", "ID"), ("show", "ID", "--events"), ("plan", "ID"), ("producers", "ID")),
    *(("replay", "ID"), ("cost", "ID", "--tree"), ("tree", "ID")),
]


@pytest.mark.parametrize("form", [(), ("--json",)])
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_goes_on(
    backend: StateBackend, cli: Cli, command: tuple[str, ...], form: tuple[str, ...]
) -> None:
    """Its JSON is valid: a cost without a finite value is null."""
    full(backend)
    session_id = full(backend)
    path = path_of(backend, session_id)
    for table, columns in ODD.items():
        first = f"(SELECT min(rowid) FROM {table})"
        for column in columns:
            sql(path, f"UPDATE {table} SET {column} = x'61ff' WHERE rowid = {first}")
    sql(path, "UPDATE events SET kind = x'61ff', producer_name = x'61ff' WHERE sequence = 5")
    sql(path, "UPDATE cost_ledger SET cost_usd = 9e999")
    sql(path_of(backend, full(backend)), "UPDATE cost_ledger SET cost_usd = -9e999")
    done = cli(*(session_id if word == "ID" else word for word in command), *form)
    assert (done.exit_code, done.exception) == (0, None), done.output
    lines = done.stdout.splitlines() if {"replay", "--events"} & set(command) else [done.stdout]
    if form:
        assert all(json.loads(line, parse_constant=pytest.fail) is not None for line in lines)
    else:
        assert done.stdout
