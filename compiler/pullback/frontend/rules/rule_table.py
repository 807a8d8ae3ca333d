"""The rule table of a program: derivative rules, staged to IR once, when first asked for."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax

from pullback import _jax
from pullback._jax import ir, jaxprs, named_axes, remat, tracing, user_rules
from pullback.autodiff.batching import Batching, BatchSignature
from pullback.autodiff.state import Differentiation
from pullback.errors import MissingRuleError, RuleResultError
from pullback.frontend import keep, link
from pullback.frontend.keep import Keeper
from pullback.frontend.rewrites import pallas_kernels
from pullback.frontend.rules import leaked_values, stage_all, trace_rule
from pullback.frontend.rules.call_table import CallTable, rule_symbol
from pullback.frontend.rules.kept_call import Batch, KeptCall
from pullback.ir import build, masks
from pullback.ir.environment import Environment, least
from pullback.ir.masks import Asked
from pullback.ir.modules import clone
from pullback.ir.ops import BATCHING_RULES
from pullback.ir.symbols import Symbols
from pullback_runtime.call._handle import LOST_CHECKS

LEAKS = (leaked_values.LeakedError, jax.errors.UnexpectedTracerError)
"""Errors of a rule that uses a value of a finished trace: ours, and JAX's in a `vmap`."""

_elsewhere: contextvars.ContextVar[Any] = contextvars.ContextVar("elsewhere", default=None)
"""The table of the program that this thread saves, how to lower its rules, and those lowered."""


class RuleTable(CallTable):
    """Rules by key; each is traced once per kind and mask, and linked into modules on demand."""

    def __init__(
        self, platforms: tuple[str, ...] = ("cpu",), dimensions: tuple[str, ...] = ()
    ) -> None:
        super().__init__(platforms, dimensions)
        self._traced: dict[tuple[str, str, Asked], tuple[Any, ...]] = {}
        self.lowered = link.Lowered(self)
        self._sources_of: dict[int, link.LinkSource] = {}
        self.keeper = Keeper(self)

    def for_platform(self, platform: str) -> RuleTable:
        """Return a new table for the same function on another platform."""
        table = RuleTable((platform,), self.dimensions)
        table._checked_axes, table.settings = self._checked_axes, self.settings
        table.constants = self.constants
        return table

    def lower_entry(self, kept: Any, name: str) -> ir.Module:
        """Lower a program to a module of this name.

        The result is a copy if there are rules, so that these are lowered beside the function.
        """
        with self.settings.where(jaxprs.types_of_values(kept))():
            module = self.lowered.lower("main", kept, entry=True).library.module
        with module.context:
            module.operation.attributes["sym_name"] = ir.StringAttr.get(name)
        self._mark(module)
        return clone(module) if self._rules else self.lowered.taken()

    def around(self, environment: Environment) -> Environment:
        """Return the environment of a module that rules of this table were written into."""
        lost_after = least(environment.lost_after, self.environment.lost_after)
        return dataclasses.replace(self.environment, lost_after=lost_after)

    def register_backward(self, equation: Any, debug_info: Any) -> KeptCall:
        """Return the rule of a linear call that JAX knows by its transpose only.

        Its map is the transpose of the user's backward rule. Where that has none, the call is for
        reverse mode, which does not need the map.
        """
        key, identities = self._find("backward only", equation, None)
        if key is None:
            call = jaxprs.equation_alone(equation, debug_info)
            key = self._new_key(rule_symbol(equation))
            rule = self._rule(key, "pullback.linear_call", equation, call, None)
            unknown = None
            with rule.as_called():
                try:
                    forward = trace_rule.forward_of_backward(rule)
                    forward = self.constants.without_leaks(forward)
                except LEAKS as error:
                    raise rule.leaking(error) from None
                except Exception as error:
                    unknown, forward = rule.no_transpose(error), trace_rule.unknown_map(rule)
            self._keys.update(dict.fromkeys(identities, key))
            kept = self.keeper.keep(forward)
            self._rules[key] = dataclasses.replace(rule, decomposition=kept, transpose_only=unknown)
        return self._rules[key]

    def stage(self, symbols: Symbols, key: str, kind: str, asked: Asked) -> str | tuple[str, str]:
        """Return the symbol(s) of a rule in a module; trace, lower and link it on first request.

        Args:
          symbols: those of the module to link the rule into.
          key: the rule's key, as in a composite's attribute `rule`.
          kind: 'jvp', 'vjp' (names of the forward and the backward function) or 'transpose'.
          asked: for which operands; for 'vjp' also for which results, where the others have
            cotangents of zero that the rule sees; and for which element types of cotangents.

        Raises:
          MissingRuleError: neither JAX nor the user's program has such a rule.
        """
        sources = self.sources(key, kind, asked)
        names = [link.merge_source(symbols, source) for source in sources]
        self._mark(symbols.module)
        return names[0] if len(names) == 1 else (names[0], names[1])

    def _mark(self, module: ir.Module) -> None:
        """Mark the module if it has lost batching rules or checks."""
        found = self.environment
        marks = {BATCHING_RULES: found.has_batching_rules, LOST_CHECKS: found.has_lost_checks}
        for name, holds in marks.items():
            if holds:
                module.operation.attributes[name] = ir.UnitAttr.get(module.context)

    def sources(self, key: str, kind: str, asked: Asked) -> list[link.LinkSource]:
        """Return what `stage` links, without linking it: a module for each function of the rule."""
        return self._sources(self._rules[key], kind, asked)

    def _sources(self, rule: KeptCall, kind: str, asked: Asked) -> list[link.LinkSource]:
        of_results = asked.results
        if not rule.sees_zeros:
            asked = asked._replace(results="")
        if rule.batch is not None:
            return self._batched_sources(rule.batch, kind, asked)
        try:
            traced = self.traced_rule(rule, kind, asked)
        except RuleResultError:  # of a result that may have no cotangent here
            if "0" not in of_results or asked.results:
                raise
            asked = asked._replace(results=of_results)
            traced = self.traced_rule(rule, kind, asked)
        return self._lowered(rule, kind, asked, traced)

    def _lowered(
        self, rule: KeptCall, kind: str, asked: Asked, traced: Sequence[Any]
    ) -> list[link.LinkSource]:
        names = rule.symbols(kind, asked)
        with self._under(rule.checked_axes, rule.policy, rule.settings):
            return [self._lower(*each) for each in zip(names, traced, strict=True)]

    def _batched_sources(self, batch: Batch, kind: str, asked: Asked) -> list[link.LinkSource]:
        """Batch the functions of a rule for one item, in a module of their own.

        JAX batches functions with a user's batching rules (`custom_vmap`) before they are lowered.
        """
        if batch.rule.batch is None and any(
            map(keep.has_batching_rule, self.traced_rule(batch.rule, kind, asked))
        ):
            return self._lowered(
                batch.rule, kind, asked, self._trace(batch.rule, kind, asked, batch)
            )
        sources = self._sources(batch.rule, kind, asked)
        module = ir.Module.create(ir.Location.unknown(_jax.context()))
        with _jax.working_in(module), build.inserting(None):
            symbols = Symbols(module)
            names = [link.merge_source(symbols, source) for source in sources]
            rule = batch.rule
            results = len(rule.call.out_avals), len(rule.inexact_results)
            signature = BatchSignature(batch.flags, tuple(rule.inexact), *results)
            with Differentiation(module, self) as functions:
                batching = Batching(functions, batch.size)
                names = list(signature.functions(batching, kind, asked, names))
                batching.finish()
        library = link.Library(module)
        return [link.LinkSource(library, name) for name in names]

    def rule_at(self, file: str, line: int) -> str | None:
        """Return what says which rule a line is in, such as "`bwd`, a rule of `f`", if any."""
        found = (rule.written_at(file, line) for rule in self._rules.values())
        return next(filter(None, found), None)

    def of_derivative(self) -> RuleTable:
        """Return this table, which has the rules of rules as well."""
        return self

    def stage_all(
        self, module: ir.Module, order: int | None = None, arguments: Sequence[Sequence[int]] = ()
    ) -> int | None:
        """Stage every rule that `module` can need; see `stage_all.stage_all`."""
        return stage_all.stage_all(self, module, order, arguments)

    @contextlib.contextmanager
    def lowering(self, lower: Callable[..., link.LinkSource]) -> Iterator[None]:
        """Run the body with rules lowered by `lower` in this thread, such as into another context.

        Callbacks and keep-alives that this adds are dropped afterwards.
        """
        kept = self.environment.host_callbacks, self.environment.keepalives
        counts = [len(each) for each in kept]
        token = _elsewhere.set((self, lower, {}))
        try:
            yield
        finally:
            _elsewhere.reset(token)
            for each, count in zip(kept, counts, strict=True):
                del each[count:]

    def traced_rule(self, rule: KeptCall, kind: str, asked: Asked) -> tuple[Any, ...]:
        """Return the functions of a rule, kept but not lowered; raise what `stage` raises."""
        key = rule.key, kind, asked
        if key not in self._traced:
            self._traced[key] = self._trace(rule, kind, asked)
        return self._traced[key]

    def _trace(
        self, rule: KeptCall, kind: str, asked: Asked, batch: Batch | None = None
    ) -> tuple[Any, ...]:
        """Trace the functions of a rule and keep them; if a batch is given, let JAX batch them."""
        of_operands, of_results, _ = asked
        if len(of_operands) != len(rule.inexact) or set(of_operands + of_results) - {"0", "1"}:
            raise ValueError(f"mask {str(asked)!r} for {rule.key}, of {len(rule.inexact)} operands")
        self.traces += 1
        self._generation = rule.generation + 1
        outer, self.place = self.place, rule.where
        chosen = masks.masked(rule.inexact, of_operands)
        given = masks.masked(rule.inexact_results, of_results) if of_results else None
        try:
            with rule.as_called(), tracing.whole_tracebacks():
                closed = trace_rule.traced(rule, kind, chosen, given, asked.types)
            self.hands_on = self.hands_on or trace_rule.hands_on(rule, kind, chosen, closed)
            closed = tuple(map(self.constants.without_leaks, closed))
            self.constants.add(*closed, *user_rules.traced_rules(rule.call.eqns[0]))
            with self._under(rule.checked_axes, rule.policy, rule.settings):
                functions = _with_marks(rule, kind, closed)
                if batch is not None:
                    functions = trace_rule.batched(rule, kind, chosen, functions, batch)
                return tuple(map(self.keeper.keep, functions))
        except LEAKS as error:
            raise rule.leaking(error) from None
        except MissingRuleError:
            raise
        except Exception as error:
            pallas_kernels.check_grid(error, kind, rule.key, rule.where)
            if trace_rule.says_missing(rule, kind, error):
                raise rule.missing(kind, chosen, error) from error
            error.add_note(f"in the {kind} rule of `{rule.key}`, called at {rule.places}")
            raise
        finally:
            self._generation = 0
            self.place = outer

    def _lower(self, name: str, closed: Any) -> link.LinkSource:
        """Lower a function of a rule on first request, and memoize the result."""
        here = self, self.lowered.lower, self._sources_of
        table, lower, lowered = _elsewhere.get() or here
        if table is not self:  # a rule may trace programs of its own
            _, lower, lowered = here
        if id(closed) not in lowered:
            with self.as_traced(closed):
                lowered[id(closed)] = lower(name, closed)
        return lowered[id(closed)]

    @contextlib.contextmanager
    def as_traced(self, closed: Any) -> Iterator[None]:
        """Run the body under the settings and the named axes that a jaxpr was traced with."""
        checked = bool(self._checked_axes)
        settings = self.settings.where(jaxprs.types_of_values(closed))
        with settings(), named_axes.tracing_context_of(closed, checked):
            yield


def _with_marks(rule: KeptCall, kind: str, closed: Sequence[Any]) -> list[Any]:
    """Return the functions of a rule with marks on what the checkpoint around it saves.

    A backward function gets none: it is not rematerialized.
    """
    functions = list(closed)
    if rule.policy is not None:
        last = 1 if kind == "vjp" else len(functions)
        with keep.refusing_memories():
            functions[:last] = [remat.with_saved(each, rule.policy) for each in functions[:last]]
    return functions
