"""Reading many session files with ``sqlite3`` alone, never writing (SB-27)."""
