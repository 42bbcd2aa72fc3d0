"""Reading one session."""
