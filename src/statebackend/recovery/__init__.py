"""Recovery of a damaged session."""
