"""Connections on one session file."""
