"""Creating and opening one session: ``create``, ``write`` and ``read``, a procedure each."""
