"""A session as names, bytes and locks; nothing here runs a statement."""
