"""Imports of other programs' transcripts: one package for each format."""
