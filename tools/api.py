"""Print the reference of the public names, built from their docstrings.

Called with ``--write``, put it into docs/api.md instead.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "api.md"

PACKAGE = "statebackend"
MODULES = ("aio", "replay", "testing", "models", "otel")
"""The documented sub-modules; ``cli`` has one public name, the group ``sessions``."""

CONSTRUCTED = {"AsyncStateBackend", "OpenTelemetry", "Renderers", "StateBackend"}
"""The classes that a caller makes; all other handles come from a method."""

PRIVATE = {
    "__main__",
    "backend",
    "bulk",
    "catalogue",
    "cli",
    "errors",
    "files",
    "interchange",
    "opening",
    "reading",
    "recording",
    "recovery",
    "repositories",
    "scanning",
    "schema",
    "sqlite",
    "telemetry",
    "values",
    "verifying",
}
"""The other modules and packages of the top level: their public names are those of ``__all__``."""

_HEAD = """\
# API

Built from the docstrings by `make docs`; do not edit. These names are public. Every other
module and name of the package is private and may change in any release.
"""


def page() -> str:
    """Return the whole page in Markdown."""
    package = importlib.import_module(PACKAGE)
    lines = [_HEAD, f"## {PACKAGE}", *_text(package)]
    for name in package.__all__:
        lines += _entry(name, getattr(package, name))
    for name in MODULES:
        module = importlib.import_module(f"{PACKAGE}.{name}")
        lines += [f"## {PACKAGE}.{name}", *_text(module), *_names_of(module, set(package.__all__))]
    group = importlib.import_module(f"{PACKAGE}.cli").sessions
    lines += [f"## {PACKAGE}.cli.sessions", *_text(importlib.import_module(f"{PACKAGE}.cli"))]
    commands = ", ".join(f"`{name}`" for name in group.list_commands(None))
    lines.append(f"Commands: {commands}.")
    return "\n\n".join(line.strip("\n") for line in lines if line.strip()) + "\n"


def public_names(module: ModuleType) -> list[str]:
    """Return the names that *module* offers: its ``__all__``, or what it defines itself."""
    if hasattr(module, "__all__"):
        return sorted(module.__all__)
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (inspect.isclass(value) or inspect.isfunction(value))
        and value.__module__ == module.__name__
    ]


def _names_of(module: ModuleType, shown: set[str]) -> Iterator[str]:
    own = f"{PACKAGE}.models" != module.__name__
    for name in public_names(module):
        value = getattr(module, name)
        if own and name in shown and value is getattr(importlib.import_module(PACKAGE), name):
            yield f"### {name}\n\nSee [above](#{name.lower()})."
        elif inspect.ismodule(value):
            yield f"### {name}"
            yield from _text(value)
            for inner in public_names(value):
                yield from _entry(f"{name}.{inner}", getattr(value, inner))
        else:
            yield from _entry(name, value)


def _entry(name: str, value: object) -> Iterator[str]:
    yield f"### {name}"
    if inspect.isclass(value):
        yield from _class(name, value)
    elif callable(value):
        yield _code(_signature(name, value))
        yield from _text(value)
    else:
        yield from _text(value)


def _class(name: str, cls: type) -> Iterator[str]:
    if issubclass(cls, enum.Enum):
        yield _code(f"class {name}({cls.__mro__[1].__name__})")
        yield from _text(cls)
        yield "\n".join(f"- `{member.name}` = `{str(member.value)!r}`" for member in cls)
        return
    bases = [base.__name__ for base in cls.__bases__ if not base.__name__.startswith("_")]
    bases = [base for base in bases if base not in {"object", "ABC", "Generic", "Protocol"}]
    if issubclass(cls, BaseException):
        yield _code(f"class {name}({', '.join(bases)})")
        yield from _text(cls)
        facts = inspect.get_annotations(cls)
        yield "\n".join(f"- `{fact}: {kind}`" for fact, kind in facts.items())
        return
    if dataclasses.is_dataclass(cls):
        yield _code(f"class {name}")
        yield from _text(cls)
        yield "\n".join(map(_field, dataclasses.fields(cls)))
    elif _has_mapped_columns(cls):
        yield _code(f"class {name}")
        yield from _text(cls)
        yield "\n".join(
            f"- `{column}`" for column in inspect.get_annotations(cls) if column[0] != "_"
        )
    else:
        yield _code(f"class {_signature(name, cls) if name in CONSTRUCTED else name}")
        yield from _text(cls)
    for member, attribute in _members(cls):
        yield from _member(name, member, attribute)


def _has_mapped_columns(cls: type) -> bool:
    return hasattr(cls, "registry") and hasattr(cls, "metadata")


def _members(cls: type) -> Iterator[tuple[str, Any]]:
    """Return the public methods and properties of *cls*, those of private bases too, in order."""
    seen = set[str]()
    for base in cls.__mro__:
        if not base.__module__.startswith(PACKAGE):
            continue
        for name, attribute in vars(base).items():
            function = attribute.fget if isinstance(attribute, property) else attribute
            function = getattr(function, "__func__", function)
            if name.startswith("_") or name in seen or not inspect.isfunction(function):
                continue
            seen.add(name)
            yield name, attribute


def _member(owner: str, name: str, attribute: Any) -> Iterator[str]:
    yield f"#### {owner}.{name}"
    if isinstance(attribute, property):
        yield _code(
            f"{name}: {_annotation(inspect.signature(_getter(attribute)).return_annotation)}"
        )
    else:
        yield _code(_signature(name, getattr(attribute, "__func__", attribute), bound=True))
    yield from _text(attribute)


def _getter(attribute: property) -> Callable[..., object]:
    assert attribute.fget is not None
    return attribute.fget


def _field(field: dataclasses.Field[Any]) -> str:
    text = f"{field.name}: {_annotation(field.type)}"
    if field.default is not dataclasses.MISSING:
        text += f" = {_default(field.default)}"
    return f"- `{text}`"


def _signature(name: str, function: Callable[..., object], *, bound: bool = False) -> str:
    """Return the call of *function* with its types, the same in every version of Python."""
    signature = inspect.signature(function)
    parts: list[str] = []
    keyword_only = False
    for parameter in list(signature.parameters.values())[bound:]:
        if parameter.kind is parameter.KEYWORD_ONLY and not keyword_only:
            parts.append("*")
        keyword_only |= parameter.kind in {parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL}
        parts.append(_parameter(parameter))
    is_async = "async " if inspect.iscoroutinefunction(function) else ""
    arrow = _arrow(function, signature)
    call = f"{is_async}{name}({', '.join(parts)}){arrow}"
    if len(call) <= 100:
        return call
    return f"{is_async}{name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){arrow}"


def _arrow(function: Callable[..., object], signature: inspect.Signature) -> str:
    if signature.return_annotation is signature.empty or inspect.isclass(function):
        return ""
    result = _annotation(signature.return_annotation)
    code = getattr(function, "__code__", None)
    if code is not None and code.co_filename == contextlib.contextmanager.__code__.co_filename:
        result = re.sub(r"^(Async)?Iterator\[", "", result).removesuffix("]")
        return f" -> context manager of {result}"
    return f" -> {result}"


def _parameter(parameter: inspect.Parameter) -> str:
    text = parameter.name
    if parameter.kind is parameter.VAR_POSITIONAL:
        text = f"*{text}"
    elif parameter.kind is parameter.VAR_KEYWORD:
        text = f"**{text}"
    if parameter.annotation is not parameter.empty:
        text += f": {_annotation(parameter.annotation)}"
    if parameter.default is not parameter.empty:
        text += f" = {_default(parameter.default)}"
    return text


def _annotation(annotation: object) -> str:
    if isinstance(annotation, str):
        return annotation
    return str(annotation.__name__ if inspect.isclass(annotation) else annotation)


def _default(value: object) -> str:
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, str | bytes | int | float | tuple | None):
        return repr(value)
    return "…"  # whatever it shows may differ from run to run


def _code(text: str) -> str:
    return f"```python\n{text}\n```"


def _text(value: object) -> Iterator[str]:
    """Return the docstring as Markdown: literal blocks as code, roles as plain code."""
    text = inspect.getdoc(value) or ""
    text = re.sub(r":(?:class|meth|func|mod|attr|data|exc):`~?([^`]+)`", r"`\1`", text)
    text = text.replace("``", "`")
    text = re.sub(r"(?m)^::$", "", text)
    text = re.sub(r"(?m)(?<=\S)::$", ":", text)
    text = re.sub(r"(?m)^((?:>>>|\.\.\. ).*(?:\n.+)*)", r"```pycon\n\1\n```", text)
    if text.strip():
        yield text


def main() -> None:
    """Print the page, or write it into docs/api.md."""
    if "--write" in sys.argv[1:]:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        sys.stdout.write(page())


if __name__ == "__main__":
    main()
