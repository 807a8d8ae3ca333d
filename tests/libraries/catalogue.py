"""What a program of a library is: a scalar function and where to differentiate it."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.libraries import programs

Made = tuple[Callable[..., Any], tuple[Any, ...]]


@dataclass(frozen=True)
class LibraryProgram:
    """A program that users of a library would write, small.

    Attributes:
      make: gives a function with a scalar result, and its arguments, trees of float64 arrays.
      order: what `save` is asked for; any if None.
      tolerance: of the norm of a difference, relative to that of JAX's.
      custom_calls: foreign code that its file may call.
      known: why a check ends in another way than with equal numbers, by words of its line.
    """

    name: str
    make: Callable[[], Made]
    order: int | None = None
    tolerance: float = 1e-7
    custom_calls: tuple[str, ...] = ()
    known: dict[str, str] = field(default_factory=dict)


class Catalogue:
    """The programs of one file."""

    def __init__(self) -> None:
        self.programs: list[LibraryProgram] = []

    def add(self, **options: Any) -> Callable[[Callable[[], Made]], Callable[[], Made]]:
        """Enters what makes a program, by its name."""

        def enter(make: Callable[[], Made]) -> Callable[[], Made]:
            name = make.__name__.replace("_", " ").strip()
            self.programs.append(LibraryProgram(name, make, **options))
            return make

        return enter


def topics() -> list[str]:
    """The files of programs."""
    return [module.name for module in pkgutil.iter_modules(programs.__path__)]


def of_topic(topic: str) -> list[LibraryProgram]:
    """The programs of a file, whose libraries are imported."""
    module = importlib.import_module(f"{programs.__name__}.{topic}")
    found: list[LibraryProgram] = module.CATALOGUE.programs
    return found
