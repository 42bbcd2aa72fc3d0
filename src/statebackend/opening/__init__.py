"""Creating and opening one session."""
