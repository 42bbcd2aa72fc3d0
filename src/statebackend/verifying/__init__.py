"""What is wrong with a session file."""
