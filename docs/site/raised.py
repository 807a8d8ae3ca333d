"""Tell what raises each error, by the `Raises:` of the functions that the reference shows."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from functools import reduce
from importlib import import_module
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1]


def report() -> str:
    """Return a section with a line for each error and each function that raises it."""
    found: dict[str, list[str]] = {}
    for page in sorted(DOCS.glob("reference*.md")):
        for name in re.findall(r"^::: (\S+)$", page.read_text(), re.M):
            for shown, anchor, function in _functions(name):
                for error, words in _raised(function):
                    line = f"[`{shown}`]({page.name}#{anchor}): {words}"
                    found.setdefault(error, []).append(line)
    parts = ["\n## What raises them\n"]
    for error in sorted(found):
        parts += [f"`{error}`\n", *(f"- {line}" for line in found[error]), ""]
    return "\n".join(parts)


def _functions(name: str) -> Iterator[tuple[str, str, Any]]:
    """Return a function, or the methods of a class, with what to call them and their anchors."""
    found = _find(name)
    package, _, last = name.rpartition(".")
    is_method = package in ("pullback.program.derivation", "pullback.program.batches")
    prefix = "program" if is_method else package.replace("pullback", "pb")
    if not inspect.isclass(found):
        yield f"{prefix}.{last}".replace("pb_runtime", "pullback_runtime"), name, found
        return
    for method, value in inspect.getmembers(found, inspect.isfunction):
        if not method.startswith("_") and value.__qualname__ == f"{found.__name__}.{method}":
            yield f"{last}.{method}", f"{name}.{method}", value


def _find(name: str) -> Any:
    """Return what a dotted name says: parts of modules, then attributes."""
    parts = name.split(".")
    for n in range(len(parts) - 1, 0, -1):
        try:
            module = import_module(".".join(parts[:n]))
            return reduce(getattr, parts[n:], module)
        except (ImportError, AttributeError):
            continue
    raise LookupError(name)


def _raised(function: Any) -> Iterator[tuple[str, str]]:
    text = (inspect.getdoc(function) or "").partition("\nRaises:\n")[2]
    section = re.match(r"(?:  .*\n?|\n(?=  ))*", text)[0]
    for names, words in re.findall(r"^  ([\w, ]+): (.*(?:\n    .*)*)", section, re.M):
        for error in names.split(", "):
            yield error, re.sub(r"\s+", " ", words)
