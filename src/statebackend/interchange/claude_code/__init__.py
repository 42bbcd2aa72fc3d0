"""Import of Claude Code transcripts."""
