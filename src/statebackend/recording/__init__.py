"""Writing one session: appends, the commit queue, group commit."""
