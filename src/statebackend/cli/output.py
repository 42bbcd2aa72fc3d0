"""What reaches stdout and stderr: the result on the one, everything else on the other.

Nothing here raises for what a stored text contains or for what the stream can encode. A reader of
stdout that went away is :class:`ReaderGone`; any other failure to write is :class:`ResultLost`.
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
    """Nobody reads stdout any more."""


class ResultLost(Exception):
    """The result could not be written to stdout."""


def stdout_is_terminal() -> bool:
    """Tell whether a person is looking at stdout."""
    return sys.stdout is not None and sys.stdout.isatty()


def bold(text: str) -> str:
    """Return *text* in bold for a terminal whose user did not ask for plain text (NO_COLOR)."""
    plain = not stdout_is_terminal() or os.environ.get("NO_COLOR") or terminal_is_dumb()
    return text if plain else f"\x1b[1m{text}\x1b[0m"


def terminal_is_dumb() -> bool:
    """Tell whether the terminal understands no escapes; Rich takes it for 80 columns wide."""
    return os.environ.get("TERM", "dumb").lower() in {"", "dumb", "unknown"}


def write(text: str) -> None:
    """Write *text* to stdout; what its encoding lacks is written as an escape."""
    if sys.stdout is not None:  # None when the process was started with stdout closed
        with _stdout_faults():
            sys.stdout.write(_encodable(text, sys.stdout))


def flush() -> None:
    """Hand over to the system all that was written to stdout."""
    if sys.stdout is not None:
        with _stdout_faults():
            sys.stdout.flush()


def write_json(value: Any) -> None:
    """Write one JSON value, indented."""
    write(_dump(value, indent=2) + "\n")


def write_json_array(values: Iterable[Any]) -> None:
    """Write a JSON array with one value on each line; ``[]`` when there is none."""
    lines = ",\n".join(map(_dump, values))
    write(f"[\n{lines}\n]\n" if lines else "[]\n")


def write_json_line(value: Any) -> None:
    """Write one value of JSON Lines."""
    write(_dump(value) + "\n")


def notice(text: str) -> None:
    """Write one line to stderr, with the program's name before it."""
    write_stderr(f"statebackend: {escape.line(text)}\n")


def write_stderr(text: str) -> None:
    """Write *text* to stderr if anybody reads it; a failure is nobody's business."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(_encodable(text, sys.stderr))
        sys.stderr.flush()
    except (OSError, ValueError):
        _silence(sys.stderr)


def abandon_stdout() -> None:
    """Send what stdout still holds, and all that is written to it later, nowhere."""
    if sys.stdout is not None:
        _silence(sys.stdout)


@contextmanager
def _stdout_faults() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        _silence(sys.stdout)
        if error.errno in (errno.EPIPE, errno.ESHUTDOWN):
            raise ReaderGone from error
        raise ResultLost(f"the result could not be written: {error.strerror}") from error


def _silence(stream: TextIO) -> None:
    """Point a broken stream at nothing, so that what it still holds goes there at exit.

    Else the interpreter flushes it once more as it ends, complains, and changes the exit code.
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

    # ASCII alone: no stream fails to encode it, a lone surrogate stays an escape, and of the
    # characters that steer a terminal only DEL is left to be escaped here.
    text = json.dumps(_finite(value), indent=indent, allow_nan=False)
    return text.replace("\x7f", "\\u007f")


def _finite(value: Any) -> Any:
    """Replace what JSON has no word for (infinity, in a file made elsewhere) by null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
