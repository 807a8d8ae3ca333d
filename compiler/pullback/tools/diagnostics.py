"""Format errors as a compiler does, and check them against `expected-error` comments of tests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from pullback._jax import ir
from pullback.errors import PullbackError
from pullback_runtime import PullbackRuntimeError, _mlir

_FILE_POSITION = re.compile(r'"?([^"\s()]*)"?:(\d+):(\d+)')
_EXPECTED = re.compile(
    r"//\s*expected-(error|warning|remark|note)(-re)?\s*(@\S+)?\s*\{\{(.*?)\}\}(?:\s|$)"
)
_REMEDY = "\n  do:    "
# A comment that was meant as an expectation but would check nothing.
_ALMOST = re.compile(r"//\s*expected-\w+")


@dataclass(frozen=True)
class Message:
    """A diagnostic; `line` is None if it has no place in a file."""

    severity: str
    text: str
    file: str = "-"
    line: int | None = None
    column: int | None = None
    notes: tuple[Message, ...] = ()

    def format(self, file_name: str, source: str = "") -> str:
        """Return `file:line:column: severity: text`, the line with a caret, and the notes below.

        Args:
          file_name: of the input, for which MLIR has a hyphen.
          source: its text; without it no line is shown.
        """
        place = ""
        if self.line is not None:
            file = file_name if self.file == "-" else self.file
            place = f"{file}:{self.line}:{self.column}: "
        said, remedy, do = self.text.partition(_REMEDY)
        lines = [f"{place}{self.severity}: {said}"]
        if self.file in ("-", file_name):
            lines += _excerpt(source, self.line, self.column)
        lines += [(remedy + do).removeprefix("\n")] * bool(do)
        for note in self.notes:
            elsewhere = note.line != self.line or note.column != self.column
            lines.append(note.format(file_name, source if elsewhere else ""))
        return "\n".join(lines)


WIDEST = 160
"""Characters of a line that are shown: the line of a constant can be long."""


def _excerpt(source: str, line: int | None, column: int | None) -> list[str]:
    """Return a line of a text, and below it a caret at a column, both counted from 1."""
    lines = source.splitlines()
    if line is None or column is None or not 0 < line <= len(lines):
        return []
    text = lines[line - 1]
    before = text.encode()[: column - 1].decode(errors="replace")  # MLIR counts bytes
    start = max(0, len(before) - WIDEST // 2) if len(text) > WIDEST else 0
    shown = text[start : start + WIDEST]
    return [shown, re.sub(r"[^\t]", " ", before[start:]) + "^"]


def messages_of(error: BaseException) -> list[Message]:
    """Return the diagnostics of an error: MLIR's own if it has some, else the error itself."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ir.MLIRError) and cause.error_diagnostics:
            return [_from_mlir(diagnostic) for diagnostic in cause.error_diagnostics]
        cause = cause.__cause__
    return [_from_error(error)]


def _from_mlir(diagnostic: ir.DiagnosticInfo) -> Message:
    file, line, column = _position(str(diagnostic.location))
    notes = tuple(_from_mlir(note) for note in diagnostic.notes)
    severity = diagnostic.severity.name.lower()
    text = _mlir.without_flags(diagnostic.message.strip())
    if remedy := _mlir.remedy_of(text):
        text += _REMEDY + remedy
    return Message(severity, text, file, line, column, notes)


def _from_error(error: BaseException) -> Message:
    if not isinstance(error, PullbackError | PullbackRuntimeError):
        return Message("error", f"{type(error).__name__}: {error}")
    file, line, column = _position(error.where or "")
    text = error.message if line is not None else str(error)
    if line is not None and error.do:
        text += _REMEDY + error.do
    return Message("error", text, file, line, column)


def _position(text: str) -> tuple[str, int | None, int | None]:
    match = _FILE_POSITION.search(text)
    if match is None:
        return "-", None, None
    return match[1], int(match[2]), int(match[3])


@dataclass(frozen=True)
class Expectation:
    """A comment `// expected-error @+1 {{text}}`; `line` is None for `@unknown`."""

    severity: str
    text: str
    pattern: re.Pattern[str]
    line: int | None
    written_at: int

    def matches(self, message: Message) -> bool:
        """Return True if this message is the expected one."""
        return (
            message.severity == self.severity
            and message.line == self.line
            and self.pattern.search(message.text) is not None
        )


def expectations(source: str) -> Iterator[Expectation]:
    """Yield the expectations in a source text.

    Raises:
      PullbackError: for a comment that starts like an expectation and is not one.
    """
    for number, line in enumerate(source.splitlines(), start=1):
        found = list(_EXPECTED.finditer(line))
        if len(_ALMOST.findall(line)) > len(found):
            raise PullbackError(
                f"line {number} looks like an expected diagnostic and is not one: {line.strip()}",
                do="write it as // expected-error @+1 {{part of the message}}",
            )
        for match in found:
            severity, is_regex, place, text = match.groups()
            pattern = text if is_regex else re.escape(text)
            line_number = _line(place, number)
            yield Expectation(severity, text, re.compile(pattern), line_number, number)


def _line(place: str | None, here: int) -> int | None:
    if place is None:
        return here
    named = {"@above": here - 1, "@below": here + 1, "@unknown": None}
    if place in named:
        return named[place]
    if not re.fullmatch(r"@[+-]?\d+", place):
        raise PullbackError(f"line {here}: cannot read the place {place!r} of an expectation")
    return here + int(place[1:]) if place[1] in "+-" else int(place[1:])


def compare(source: str, messages: list[Message]) -> list[str]:
    """Return how the expected diagnostics differ from the actual ones; empty if they do not."""
    everything = [part for message in messages for part in (message, *message.notes)]
    unmet, unexpected = [], [message for message in everything if message.severity != "note"]
    for expectation in expectations(source):
        match = next((item for item in everything if expectation.matches(item)), None)
        if match is None:
            unmet.append(expectation)
        elif match in unexpected:
            unexpected.remove(match)
    problems = [
        f"line {expectation.written_at}: expected {expectation.severity} "
        f"'{expectation.text}' was not produced"
        for expectation in unmet
    ]
    return problems + [f"unexpected {message.format('-')}" for message in unexpected]
