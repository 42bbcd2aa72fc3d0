"""Benchmarks: every figure is a ratio to a bare ``sqlite3`` loop in the same run.

``python -m benchmarks --help`` tells how to run them, ``docs/benchmarks.md`` how they measure.
"""
