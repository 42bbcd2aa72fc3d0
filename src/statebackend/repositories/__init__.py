"""Reading and writing the five tables on a given connection: never open, begin or commit.

What is appended goes through statements compiled once from the mapped tables and run on the
driver's connection, since that is the hot path; what is read goes through SQLAlchemy.
"""
