"""Output: the result goes to stdout, everything else to stderr.

No stored text and no stream encoding makes a function here fail. When the reader of stdout has
gone, :class:`ReaderGone` is raised, for any other failed write :class:`ResultLost`.
"""

from __future__ import annotations

import errno
import math
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from statebackend.cli import escape


class ReaderGone(Exception):
    """The reader of stdout has gone."""


class ResultLost(Exception):
    """The result could not be written to stdout."""


def stdout_is_terminal() -> bool:
    """Return whether stdout is a terminal."""
    return sys.stdout is not None and sys.stdout.isatty()


def bold(text: str) -> str:
    """Return *text* in bold if stdout is a terminal and NO_COLOR is not set."""
    plain = not stdout_is_terminal() or os.environ.get("NO_COLOR") or terminal_is_dumb()
    return text if plain else f"\x1b[1m{text}\x1b[0m"


def terminal_is_dumb() -> bool:
    """Return whether the terminal supports no escape sequences."""
    return os.environ.get("TERM", "dumb").lower() in {"", "dumb", "unknown"}


def write(text: str) -> None:
    """Write *text* to stdout; characters its encoding lacks are written as escapes."""
    if sys.stdout is not None:  # None when the process was started with stdout closed
        with _convert_write_errors():
            sys.stdout.write(_encodable(text, sys.stdout))


def flush() -> None:
    """Flush stdout."""
    if sys.stdout is not None:
        with _convert_write_errors():
            sys.stdout.flush()


def write_json(value: Any) -> None:
    """Write one JSON value, indented."""
    write(_dump(value, indent=2) + "\n")


def write_json_array(values: Iterable[Any]) -> None:
    """Write a JSON array with one value on each line; ``[]`` if it is empty."""
    lines = ",\n".join(map(_dump, values))
    write(f"[\n{lines}\n]\n" if lines else "[]\n")


def write_json_line(value: Any) -> None:
    """Write one value of JSON Lines."""
    write(_dump(value) + "\n")


def notice(text: str) -> None:
    """Write one line to stderr, with the program's name before it."""
    write_stderr(f"statebackend: {escape.line(text)}\n")


def write_stderr(text: str) -> None:
    """Write *text* to stderr; a failure to write is ignored."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(_encodable(text, sys.stderr))
        sys.stderr.flush()
    except (OSError, ValueError):
        _silence(sys.stderr)


def abandon_stdout() -> None:
    """Discard what stdout still buffers and all later output."""
    if sys.stdout is not None:
        _silence(sys.stdout)


@contextmanager
def _convert_write_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        _silence(sys.stdout)
        if error.errno in (errno.EPIPE, errno.ESHUTDOWN):
            raise ReaderGone from error
        raise ResultLost(f"the result could not be written: {error.strerror}") from error


def _silence(stream: TextIO) -> None:
    """Point a broken stream at the null device.

    Else the interpreter flushes the stream at exit, prints an error and changes the exit code.
    """
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


def _encodable(text: str, stream: TextIO) -> str:
    if text.isascii():
        return text
    encoding = stream.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def _dump(value: Any, *, indent: int | None = None) -> str:
    import json

    # ASCII only: every stream can encode it, and a lone surrogate stays an escape. DEL is the one
    # control character that json.dumps leaves alone.
    text = json.dumps(_finite(value), indent=indent, allow_nan=False)
    return text.replace("\x7f", "\\u007f")


def _finite(value: Any) -> Any:
    """Replace infinity and NaN, which another program may have stored, by null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
