"""Questions about all sessions: a module holds what one reads, selects and adds up."""
