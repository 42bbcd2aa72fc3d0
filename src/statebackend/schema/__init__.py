"""The schema of a session file: models, revisions, the migration runner."""
