"""Work over many sessions: questions, the tree, migration, closing stale sessions."""
