"""Questions about all sessions: each module reads, selects and adds up the answers to one."""
