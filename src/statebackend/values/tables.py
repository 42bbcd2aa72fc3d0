"""The five tables of a session file and their columns, in the specification's order.

``schema.models`` maps the same ones; a test holds the two equal.
"""

_TABLES = {
    "events": "sequence id timestamp kind producer_category producer_name producer_version "
    "schema_version payload",
    "session_meta": "session_id parent_session_id profile status depth started_at ended_at",
    "cost_ledger": "sequence event_sequence provider_name model_id input_tokens output_tokens "
    "cache_write_tokens cache_read_tokens cost_usd",
    "plan_items": "sequence event_sequence turn_id tool_call_id provider_name tool_name decision "
    "decided_by",
    "producers": "category name version first_seen_sequence",
}
COLUMNS = {table: tuple(columns.split()) for table, columns in _TABLES.items()}
"""The columns of each table."""
TABLES = frozenset(COLUMNS)
SEQUENCED = tuple(table for table, columns in COLUMNS.items() if columns[0] == "sequence")
"""The tables whose rows SQLite numbers, never giving a number twice (AUTOINCREMENT)."""
APPEND_ONLY = TABLES - {"session_meta"}
"""The tables whose rows are never changed or deleted (SB-10)."""
