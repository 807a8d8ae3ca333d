"""The base class of passes, and the interface of the rule table that they query."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

from pullback._jax import ir
from pullback.errors import MissingRuleError
from pullback.ir import ops
from pullback.ir.masks import Asked

if TYPE_CHECKING:
    from pullback.ir.environment import Environment
    from pullback.ir.symbols import Symbols


class Rules(Protocol):
    """The part of `pullback.frontend.rules.rule_table.RuleTable` that passes use."""

    def stage(self, symbols: Symbols, key: str, kind: str, asked: Asked) -> str | tuple[str, str]:
        """Return the symbol(s) of a rule in the module of `symbols`; see docs/architecture.md."""

    def sources(self, key: str, kind: str, asked: Asked) -> list[Any]:
        """Return what `stage` would link: modules with the function `entry` among `functions`."""

    def stops(self, key: str) -> bool:
        """Return True if a call lets no tangent pass, as `RuleTable.stops` does."""

    def goes_forward(self, key: str) -> bool:
        """Return True if a call with a backward rule has a jvp rule, too."""

    def rule_at(self, file: str, line: int) -> str | None:
        """Return what says which rule a line is in, such as "`bwd`, a rule of `f`", if any."""

    def stage_all(
        self, module: ir.Module, order: int | None = None, arguments: Sequence[Sequence[int]] = ()
    ) -> int | None:
        """Replace every `rule` attribute in `module` by symbol references.

        Return how often the module can be differentiated then; None is any number of times.
        """

    def around(self, environment: Environment) -> Environment:
        """Return the environment of a module that rules of this table were written into."""

    def lowering(self, lower: Any) -> contextlib.AbstractContextManager[None]:
        """Lower rules by `lower` for a while, as into another context."""

    def of_derivative(self) -> Rules:
        """Return the rule table of a derivative of the module."""


class NoRules:
    """The table of a loaded or hand-written module: it knows no rule beyond the module's own."""

    def stage(self, symbols: Symbols, key: str, kind: str, asked: Asked) -> str | tuple[str, str]:
        """Raise MissingRuleError."""
        raise _without_table(key, kind, asked)

    def sources(self, key: str, kind: str, asked: Asked) -> list[Any]:
        """Raise MissingRuleError."""
        raise _without_table(key, kind, asked)

    def batched(self, key: str, flags: tuple[bool, ...], size: int) -> str:
        """Return the same key: there is no rule to batch."""
        return key

    def stops(self, key: str) -> bool:
        """Return False: there is no rule."""
        return False

    goes_forward = stops

    def rule_at(self, file: str, line: int) -> str | None:
        """Return None: no rule is known by its lines."""
        return None

    def stage_all(
        self, module: ir.Module, order: int | None = None, arguments: Sequence[Sequence[int]] = ()
    ) -> int | None:
        """Raise MissingRuleError for the first `rule` that is not staged."""
        for call in ops.walk_calls(module):
            if call.rule_key is not None:
                raise _without_table(call.rule_key, "derivative", Asked(call.mask))
        return order

    def around(self, environment: Environment) -> Environment:
        """Return the same environment: no rule is written into a module."""
        return environment

    def of_derivative(self) -> Self:
        """Return this table."""
        return self

    def lowering(self, *_: Any) -> contextlib.AbstractContextManager[None]:
        """Return a context manager that does nothing: there is nothing to lower."""
        return contextlib.nullcontext()


def _without_table(key: str, kind: str, asked: Asked) -> MissingRuleError:
    return MissingRuleError(
        f"no {kind} rule for key {key!r} with mask {str(asked)!r}: this module came without a "
        "rule table",
        do="write the module with its rules in it: `pullback dump --rules`, "
        "program.stage_rules(), or program.save",
    )


NO_RULES = NoRules()


@dataclass(frozen=True)
class Pass:
    """One rewrite of a module; the fields of a subclass are its options."""

    name: ClassVar[str] = ""

    def run(self, module: ir.Module, rules: Rules) -> None:
        """Rewrite `module` in place."""
        raise NotImplementedError(f"pass {self.name!r} has no run method")

    def __str__(self) -> str:
        """Return the textual form, with the options that differ from their defaults."""
        shown = [
            f"{option_name(field)}={format_option(getattr(self, field.name))}"
            for field in dataclasses.fields(self)
            if getattr(self, field.name) != default_of(field)
        ]
        return f"{self.name}{{{' '.join(shown)}}}" if shown else self.name


def option_name(field: dataclasses.Field[Any]) -> str:
    """Return the textual name of an option: the field `max_ops` is spelt `max-ops`."""
    return field.name.replace("_", "-")


def default_of(field: dataclasses.Field[Any]) -> Any:
    """Return the default of an option; options without one are required."""
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


_PLAIN_OPTION = re.compile(r"[^\s{}\"']+")


def format_option(value: Any) -> str:
    """Return the text of an option value, as a pipeline spells it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (tuple, list)):
        return ",".join(format_option(item) for item in value)
    text = str(value)
    quote = "'" if '"' in text else '"'
    return text if _PLAIN_OPTION.fullmatch(text) else f"{quote}{text}{quote}"
