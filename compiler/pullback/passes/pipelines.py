"""Named pipelines, and the parser of MLIR's textual pipeline syntax.

`builtin.module(jvp{entry=main wrt=0,1},cse,func.func(chlo-legalize-to-stablehlo))` becomes a
tuple of our `Pass` objects and, as text, of the upstream passes that stand between them.
"""

from __future__ import annotations

import functools
import importlib
from dataclasses import dataclass

from pullback.errors import PipelineError
from pullback.ir.mlir_passes import stock_stage
from pullback.passes import PASSES, PIPELINES, STOCK_PASSES, plugins
from pullback.passes.base import Pass
from pullback.passes.options import build_pass, did_you_mean, split_options

MODULE_ANCHORS = ("builtin.module", "any")

Stage = Pass | str


@dataclass(frozen=True)
class Element:
    """One entry of a textual pipeline: a pass with options, or an anchor with entries."""

    name: str
    options: str = ""
    nested: tuple[Element, ...] | None = None

    def __str__(self) -> str:
        if self.nested is not None:
            return f"{self.name}({','.join(map(str, self.nested))})"
        return f"{self.name}{{{self.options}}}" if self.options else self.name


def format_pipeline(stages: tuple[Stage, ...]) -> str:
    """Return the text that `parse_pipeline` reads back."""
    return f"builtin.module({','.join(map(str, stages))})"


@functools.lru_cache(maxsize=256)
def parse_pipeline(text: str) -> tuple[Stage, ...]:
    """Parse the stages of a pipeline, with or without the `builtin.module(…)` around it.

    Raises:
      PipelineError: for syntax errors, unknown passes, and unknown or ill-typed options.
    """
    try:
        return _stages(text)
    except RecursionError:
        raise PipelineError(
            "cannot read the pass pipeline: too many brackets inside one another"
        ) from None


def _stages(text: str) -> tuple[Stage, ...]:
    elements = _PipelineParser(text).parse()
    if len(elements) == 1 and elements[0].name in MODULE_ANCHORS:
        elements = elements if elements[0].nested is None else elements[0].nested
    return tuple(stage for element in elements for stage in _resolve(element))


def load_pass(name: str) -> type[Pass]:
    """Import the class of a pass, of ours or of another package."""
    if name not in PASSES:
        return plugins.load(name)
    module_name, class_name = PASSES[name].split(":")
    return getattr(importlib.import_module(module_name), class_name)


def _resolve(element: Element) -> tuple[Stage, ...]:
    if element.nested is not None:
        _check_nested(element)
        return (stock_stage(str(element)),)
    if element.name in PASSES:
        return (build_pass(load_pass(element.name), element.options),)
    if element.name in PIPELINES:
        return _without(element, parse_pipeline(PIPELINES[element.name]))
    if element.name not in STOCK_PASSES and element.name in plugins.names():
        return (build_pass(load_pass(element.name), element.options),)
    check_known(element.name)
    return (stock_stage(str(element)),)


def _without(element: Element, stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
    """Return the stages of a pipeline but those that its option `without=pass,pass` names."""
    left_out: set[str] = set()
    for name, value in split_options(element.name, element.options):
        if name != "without" or not value:
            raise PipelineError(
                f"pipeline {element.name!r} has no option {name!r}",
                do="leave passes of it out by without=pass,pass",
            )
        left_out.update(value.split(","))
    names = [stage.name if isinstance(stage, Pass) else stage for stage in stages]
    for name in sorted(left_out.difference(names)):
        raise PipelineError(
            f"pipeline {element.name!r} has no pass {name!r}", do=did_you_mean(name, names)
        )
    pairs = zip(names, stages, strict=True)
    return tuple(stage for name, stage in pairs if name not in left_out)


def _check_nested(element: Element) -> None:
    """Check that only upstream passes are nested in an anchor such as `func.func`."""
    for inner in element.nested or ():
        if inner.nested is not None:
            _check_nested(inner)
        elif inner.name in {*PASSES, *PIPELINES, *plugins.names()}:
            raise PipelineError(
                f"{inner.name!r} works on the whole module and cannot be nested in "
                f"{element.name}(…)",
                do=f"move {inner.name} out of {element.name}(…)",
            )
        else:
            check_known(inner.name)


def check_known(name: str) -> None:
    """Raise PipelineError for a name that no pass has, neither ours nor one of MLIR."""
    if name in PIPELINES:
        raise PipelineError(
            f"{name!r} is a pipeline, and no pass", do=f"name one of its passes: {PIPELINES[name]}"
        )
    if not is_known(name):
        close = did_you_mean(name, known_names())
        raise PipelineError(
            f"no pass is named {name!r}", do=close or "list them: pullback opt --list-passes"
        )


def known_names() -> list[str]:
    """Return the names of passes and pipelines: ours, MLIR's that we list, other packages'."""
    return [*PASSES, *PIPELINES, *STOCK_PASSES, *plugins.names()]


def is_known(name: str) -> bool:
    """Return True if a pass or a pipeline has this name."""
    return name in known_names() or _is_registered(name)


def _is_registered(name: str) -> bool:
    """Return True if MLIR knows a pass of this name, at module or function level."""
    try:
        stock_stage(name)
    except PipelineError:
        return False
    return True


class _PipelineParser:
    """A recursive-descent reader of `name{options}(nested),…`."""

    def __init__(self, text: str):
        self.text = text
        self.position = 0

    def parse(self) -> tuple[Element, ...]:
        elements = self._elements()
        if self.position != len(self.text):
            raise self._error("expected ',' or the end")
        return elements

    def _elements(self) -> tuple[Element, ...]:
        if self._peek() in ("", ")"):
            return ()
        elements = [self._element()]
        while self._accept(","):
            elements.append(self._element())
        return tuple(elements)

    def _element(self) -> Element:
        name = self._name()
        if self._accept("("):
            nested = self._elements()
            if not self._accept(")"):
                raise self._error("expected ')'")
            return Element(name, nested=nested)
        return Element(name, self._options())

    def _name(self) -> str:
        self._skip_space()
        start = self.position
        while self._at_name_character():
            self.position += 1
        if start == self.position:
            raise self._error("expected the name of a pass")
        return self.text[start : self.position]

    def _at_name_character(self) -> bool:
        if self.position >= len(self.text):
            return False
        character = self.text[self.position]
        return character.isalnum() or character in "-_."

    def _options(self) -> str:
        """Read the text between balanced braces; quotes hide braces."""
        if not self._accept("{"):
            return ""
        start, depth, quote = self.position, 1, ""
        while self.position < len(self.text):
            character = self.text[self.position]
            self.position += 1
            if quote:
                quote = "" if character == quote else quote
            elif character in "\"'":
                quote = character
            else:
                depth += {"{": 1, "}": -1}.get(character, 0)
            if depth == 0:
                return self.text[start : self.position - 1].strip()
        raise self._error("expected '}'")

    def _accept(self, character: str) -> bool:
        if self._peek() != character:
            return False
        self.position += 1
        self._skip_space()
        return True

    def _peek(self) -> str:
        self._skip_space()
        return self.text[self.position : self.position + 1]

    def _skip_space(self) -> None:
        while self.text[self.position : self.position + 1].isspace():
            self.position += 1

    def _error(self, problem: str) -> PipelineError:
        marker = " " * self.position + "^"
        return PipelineError(
            f"cannot read the pass pipeline: {problem}\n    {self.text}\n    {marker}",
            do="write it as builtin.module(first-pass{option=value},second-pass)",
        )
