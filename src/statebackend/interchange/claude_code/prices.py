"""What a model's tokens cost: the price table that an import takes."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path

from statebackend.errors import InvalidValue

_HIGHEST_USD = 1e9  # keeps a turn of 2^63-1 tokens finite


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPrice:
    """US dollars per million tokens, for each of the four counters of a cost row."""

    input: float
    output: float
    cache_write: float
    cache_read: float

    def __post_init__(self) -> None:
        for field in fields(self):
            _check_price(field.name, getattr(self, field.name))


def _check_price(name: str, value: object) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise InvalidValue(name, f"must be a number of US dollars, not {type(value).__name__}")
    if not 0 <= value <= _HIGHEST_USD:
        raise InvalidValue(name, f"must be 0 … {_HIGHEST_USD:.0f} US dollars per million tokens")


def load_prices(path: Path) -> dict[str, ModelPrice]:
    """Read a price table: a JSON object from each model's name to its four prices.

    Each model has ``input``, ``output``, ``cache_write`` and ``cache_read``, in US dollars per
    million tokens. Raises :class:`InvalidValue` naming the file and the key that is wrong.
    """
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidValue(str(path), f"cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise InvalidValue(str(path), f"is not JSON: {error}") from error
    if not isinstance(table, dict):
        raise InvalidValue(str(path), "must be a JSON object from model names to prices")
    return {model: _price(path, model, entry) for model, entry in table.items()}


def _price(path: Path, model: str, entry: object) -> ModelPrice:
    names = [field.name for field in fields(ModelPrice)]
    if not isinstance(entry, dict):
        raise InvalidValue(f"{path}: {model}", f"must be an object with {', '.join(names)}")
    for name in names:
        if name not in entry:
            raise InvalidValue(f"{path}: {model}.{name}", "is missing")
    for name in entry:
        if name not in names:
            raise InvalidValue(f"{path}: {model}.{name}", f"is not one of {', '.join(names)}")
    try:
        return ModelPrice(**entry)
    except InvalidValue as error:
        problem = str(error).partition(": ")[2]
        raise InvalidValue(f"{path}: {model}.{error.field}", problem) from None
