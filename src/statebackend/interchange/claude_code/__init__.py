"""Transcripts of Claude Code."""
