"""What a pass is, and the rule table that a pass may ask for rules."""

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

if TYPE_CHECKING:
    from pullback.ir.symbols import Symbols
    from pullback.program.environment import Environment


class Rules(Protocol):
    """The part of `pullback.frontend.rules.rule_table.RuleTable` that passes use."""

    def stage(self, symbols: Symbols, key: str, kind: str, mask: str) -> str | tuple[str, str]:
        """The symbol(s) of a rule in the module of `symbols`; see docs/architecture.md.

        `mask` is the text of a `masks.Asked`.
        """

    def sources(self, key: str, kind: str, mask: str) -> list[Any]:
        """What `stage` would link: modules with the function `entry` among their `functions`."""

    def stops(self, key: str) -> bool:
        """As `RuleTable.stops`."""

    def goes_forward(self, key: str) -> bool:
        """As `RuleTable.goes_forward`."""

    def stage_all(
        self, module: ir.Module, order: int | None = None, arguments: Sequence[Sequence[int]] = ()
    ) -> int | None:
        """Replaces every `rule` attribute in `module` by symbol references.

        Returns how often the module can be differentiated then; None is any number of times.
        """

    def around(self, environment: Environment) -> Environment:
        """Return the environment of a module that rules of this table were written into."""

    def of_derivative(self) -> Rules:
        """The table of what a derivative makes of the module."""


class NoRules:
    """The table of a loaded or hand-written module: it knows no rule beyond the module's own."""

    def stage(self, symbols: Symbols, key: str, kind: str, mask: str) -> str | tuple[str, str]:
        """Raises MissingRuleError."""
        raise _without_table(key, kind, mask)

    def sources(self, key: str, kind: str, mask: str) -> list[Any]:
        """Raises MissingRuleError."""
        raise _without_table(key, kind, mask)

    def batched(self, key: str, flags: tuple[bool, ...], size: int) -> str:
        """The same key: no rule is here, nor for a batch."""
        return key

    def stops(self, key: str) -> bool:
        """No rule is here."""
        return False

    goes_forward = stops

    def stage_all(
        self, module: ir.Module, order: int | None = None, arguments: Sequence[Sequence[int]] = ()
    ) -> int | None:
        """Raises MissingRuleError for the first `rule` that is not staged."""
        for call in ops.walk_calls(module):
            if call.rule_key is not None:
                raise _without_table(call.rule_key, "derivative", call.mask)
        return order

    def around(self, environment: Environment) -> Environment:
        """The same: no rule is written into a module."""
        return environment

    def of_derivative(self) -> Self:
        """This one."""
        return self

    def lowering(self, *_: Any) -> contextlib.AbstractContextManager[None]:
        """There is nothing to lower."""
        return contextlib.nullcontext()


def _without_table(key: str, kind: str, mask: str) -> MissingRuleError:
    return MissingRuleError(
        f"no {kind} rule for key {key!r} with mask {mask!r}: this module came without a rule table",
        do="write the module with its rules in it: `pullback dump --rules`, "
        "program.stage_rules(), or program.save",
    )


NO_RULES = NoRules()


@dataclass(frozen=True)
class Pass:
    """One rewrite of a module; the fields of a subclass are its options."""

    name: ClassVar[str] = ""

    def run(self, module: ir.Module, rules: Rules) -> None:
        """Rewrites `module` in place."""
        raise NotImplementedError(f"pass {self.name!r} has no run method")

    def __str__(self) -> str:
        """The textual form, with the options that differ from their defaults."""
        shown = [
            f"{option_name(field)}={format_option(getattr(self, field.name))}"
            for field in dataclasses.fields(self)
            if getattr(self, field.name) != default_of(field)
        ]
        return f"{self.name}{{{' '.join(shown)}}}" if shown else self.name


def option_name(field: dataclasses.Field[Any]) -> str:
    """The textual name of an option: the field `max_ops` is spelt `max-ops`."""
    return field.name.replace("_", "-")


def default_of(field: dataclasses.Field[Any]) -> Any:
    """The default of an option; options without one are required."""
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


_PLAIN_OPTION = re.compile(r"[^\s{}\"']+")


def format_option(value: Any) -> str:
    """The text of an option value, as a pipeline spells it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (tuple, list)):
        return ",".join(format_option(item) for item in value)
    text = str(value)
    quote = "'" if '"' in text else '"'
    return text if _PLAIN_OPTION.fullmatch(text) else f"{quote}{text}{quote}"
