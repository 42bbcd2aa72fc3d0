"""``python -m statebackend`` is the command line."""

from statebackend.cli import main

main()
