"""Peers: what an append costs elsewhere, each by its own API and with its own defaults.

``python -m benchmarks.peers`` runs them all, ``docs/benchmarks.md`` tells how they are compared.
"""
