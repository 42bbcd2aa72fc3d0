"""Salvage of a damaged session file: passes over shared evidence, listed in :mod:`.salvage`."""
