"""Read the text of a module that was printed with locations: its ops, and the lines of these."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pullback._jax.source_info import Frame
from pullback_runtime._jax import unescaped

_TEXT = r"\"((?:[^\"\\]|\\.)*)\""
_ALIAS = re.compile(r"^(#loc\d*) = loc\((.*)\)$")
_NAMED_ALIAS = re.compile(r"#loc\d*")
_PART = rf"(?:[^()\"]|{_TEXT.replace('(', '(?:', 1)})"
_LOCATION = re.compile(rf" ?loc\(((?:{_PART}|\((?:{_PART}|\({_PART}*\))*\))*)\)")
_MARK = re.compile(r"\"([a-z]+):(\d+)\"")
_FILE = re.compile(rf"{_TEXT}:(\d+):\d+")
_NAME = re.compile(rf"{_TEXT}\(")
_INSIDE = re.compile(r"\s*(?:[})^]|(?:cond|reducer|do)\b)")
"""A row that begins no op: where a region of it begins or ends."""

Mark = tuple[str, int]
"""A name and a number that a location holds as `"name:3"`."""


@dataclass(frozen=True)
class Span:
    """The first and the last row of an op, and the name of its location in the text."""

    start: int
    end: int
    location: str


class Printed:
    """A text of a module with locations, as MLIR prints it: `loc(#loc7)` at the end of each op.

    Attributes:
      rows: the lines of the module without locations.
      spans: the ops that are printed, in the order of their last rows; those of a region that the
        text abbreviates are not, as for `stablehlo.reduce … applies stablehlo.add`.
    """

    def __init__(self, text: str) -> None:
        self.rows: list[str] = []
        self.spans: list[Span] = []
        self._texts: dict[str, str] = {}
        self._marks: dict[str, tuple[Mark, ...]] = {}
        self._frames: dict[str, tuple[Frame, ...]] = {}
        begins: dict[int, int] = {}  # by indentation, the last row that begins an op
        for line in text.splitlines():
            if alias := _ALIAS.match(line):
                self._texts[alias[1]] = alias[2]
                continue
            number, margin = len(self.rows), len(line) - len(line.lstrip())
            if not _INSIDE.match(line):
                begins[margin] = number
            found = list(_LOCATION.finditer(line))
            if found and found[-1].end() == len(line) and margin:
                self.spans.append(Span(begins[margin], number, found[-1][1]))
            self.rows.append(_LOCATION.sub("", line) if found else line)

    def marks(self, location: str) -> tuple[Mark, ...]:
        """Return the marks in a location, in order: of the op itself first, of its calls last."""
        if location not in self._marks:
            text = self._texts.get(location, location)
            marks = tuple((m[1], int(m[2])) for m in _MARK.finditer(text))
            inner = (self.marks(name) for name in _NAMED_ALIAS.findall(text) if name != location)
            self._marks[location] = marks + tuple(each for found in inner for each in found)
        return self._marks[location]

    def frames(self, location: str) -> tuple[Frame, ...]:
        """Return the frames in a location, innermost first; their function is "" where unknown."""
        if location not in self._frames:
            self._frames[location] = self._frames_in(location)
        return self._frames[location]

    def _frames_in(self, location: str) -> tuple[Frame, ...]:
        text = self._texts.get(location, location)
        if file := _FILE.match(text):
            return ((unescaped(file[1]), int(file[2]), ""),)
        inner = [self.frames(name) for name in _NAMED_ALIAS.findall(text) if name != location]
        frames = tuple(each for found in inner for each in found)
        named = _NAME.match(text)
        if named and len(frames) == 1 and not frames[0][2]:
            return ((*frames[0][:2], unescaped(named[1])),)
        return frames
