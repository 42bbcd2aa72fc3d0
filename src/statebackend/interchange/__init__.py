"""Sessions of other programs, brought in: one module a foreign format."""
