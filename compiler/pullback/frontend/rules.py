"""The rule table of a program: derivative rules, staged to IR once, when first asked for."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import functools
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax

from pullback import _jax
from pullback._edits import clone
from pullback._errors import LeakedValueError, MissingRuleError, PullbackError
from pullback._jax import derivatives, high, ir, jaxprs, named_axes, tracing, user_rules
from pullback.dialect import build, ops
from pullback.dialect.ops import REFUSED, RULE
from pullback.frontend import kernels, lifting, link, locations, rebinding, refusals, staging
from pullback.frontend.identity import Identities
from pullback.frontend.keep import Keeper, is_inexact
from pullback_runtime import _meshes

LAST_GENERATION = 8
"""Rules of rules are staged up to here. Most end sooner, in a rule that calls its own function;
some never end, because every derivative is a function of its own, as for a Maclaurin series."""

LEAKS = (lifting.LeakedError, jax.errors.UnexpectedTracerError)
"""What says that a rule uses a value of a trace that is over: ours, and JAX's in a `vmap`."""

MOST_RULES = 1500
"""More than any program needs whose equal rules are found to be equal."""

PATIENCE = 60.0
"""Seconds after which who waits for rules of rules is told of `order`."""

_elsewhere: contextvars.ContextVar[Any] = contextvars.ContextVar("elsewhere", default=None)
"""The table of the program that this thread saves, how to lower its rules, and those that are."""


@dataclasses.dataclass(frozen=True)
class Batch:
    """The calls of a rule for a batch: which operands have the batch axis, and its size."""

    rule: Rule
    flags: tuple[bool, ...]
    size: int


@dataclasses.dataclass(frozen=True)
class Rule:
    """One kept call: what it computes, and the original call that knows its derivatives."""

    key: str
    op: str
    primitive: str
    call: Any
    decomposition: Any
    num_residuals: int | None
    where: str
    generation: int = 0
    checked_axes: tuple[str, ...] = ()
    closed_over: int = 0
    batch: Batch | None = None

    @functools.cached_property
    def inexact(self) -> list[int]:
        """The positions of the operands that have tangents."""
        return [i for i, aval in enumerate(self.call.in_avals) if is_inexact(aval)]

    @property
    def inexact_results(self) -> list[int]:
        """The positions of the results that have cotangents."""
        return [i for i, aval in enumerate(self.call.out_avals) if is_inexact(aval)]

    @property
    def counts(self) -> tuple[tuple[str, int], ...]:
        """The integers among the attributes of a call."""
        if self.num_residuals is not None:
            return (("num_residuals", self.num_residuals),)
        return (("closed_over", self.closed_over),) if "0" in self.own_mask else ()

    @property
    def own_mask(self) -> str:
        """The mask of the inexact operands, but for those that the function closes over."""
        return "".join("1" if i >= self.closed_over else "0" for i in self.inexact)

    @property
    def single_masks(self) -> list[str]:
        """The masks in which one of these operands is perturbed."""
        own, count = self.own_mask, len(self.inexact)
        return ["0" * i + "1" + "0" * (count - i - 1) for i in range(count) if own[i] == "1"]

    @property
    def knows_operands_apart(self) -> bool:
        """Whether its rules can see which operands are perturbed, and refuse by some of them."""
        return self.primitive not in staging.USERS or self.sees_zeros

    @functools.cached_property
    def sees_zeros(self) -> bool:
        """Whether its rules are told which tangents, or which cotangents, are zero."""
        return user_rules.wants_symbolic_zeros(self.call)

    @property
    def goes_forward(self) -> bool:
        """Whether a call with a backward rule has one for forward mode, too."""
        is_high = self.primitive == "call_hi_primitive"
        return is_high and high.rules_of(self.call.eqns[0]) >= {"jvp", "vjp"}

    @property
    def linear_mask(self) -> str:
        """The mask of the operands that a linear call is linear in."""
        return "".join("1" if i >= (self.num_residuals or 0) else "0" for i in self.inexact)


class RuleTable:
    """Rules by key; each is traced once per kind and mask, and linked into modules on demand."""

    def __init__(self, platforms: tuple[str, ...] = ("cpu",)):
        self.platforms = platforms
        self.keepalives: list[Any] = []
        self.host_callbacks: list[Any] = []
        self.mesh: jax.sharding.Mesh | None = None
        self.has_batching_rules = False  # of the user's, which only JAX's jaxprs know
        self.traces = 0
        self._rules: dict[str, Rule] = {}
        self._keys: dict[Any, str] = {}
        self._traced: dict[tuple[str, str, str], tuple[Any, ...]] = {}
        self.lowered = link.Lowered(self)
        self._sources_of: dict[int, link.Source] = {}
        self._adopted: dict[int, tuple[RuleTable, dict[str, str]]] = {}
        self._assigned_again: dict[str, str] = {}
        self._generation = 0
        self._checked_axes = named_axes.axes_checked_here()
        self._configuration = tracing.configuration()
        self._identities = Identities()
        self.keeper = Keeper(self)

    def lower_entry(self, kept: Any, name: str) -> ir.Module:
        """The module of a program, of this name.

        It is a copy where there are rules, so that these are lowered beside the function.
        """
        module = self.lowered.lower("main", kept, entry=True).library.module
        with module.context:
            module.operation.attributes["sym_name"] = ir.StringAttr.get(name)
        return clone(module) if self._rules else self.lowered.taken()

    def __getitem__(self, key: str) -> Rule:
        return self._rules[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rules)

    def use_mesh(self, mesh: Any) -> None:
        """Notes the devices that the program runs on, where its mesh names devices."""
        if isinstance(mesh, jax.sharding.Mesh) and mesh.size > 1:
            self.mesh = mesh

    @property
    def axes(self) -> _meshes.Axes:
        """Names and sizes of the axes of the mesh; none for a program of one device."""
        return _meshes.axes_of_mesh(self.mesh)

    def inside(self, equation: Any) -> contextlib.AbstractContextManager[None]:
        """Calls met now are in the body of this `shard_map`."""
        return self._under((*self._checked_axes, *named_axes.checked_axes(equation)))

    @contextlib.contextmanager
    def _under(self, checked_axes: tuple[str, ...]) -> Iterator[None]:
        outer, self._checked_axes = self._checked_axes, checked_axes
        try:
            yield
        finally:
            self._checked_axes = outer

    def register(self, op: str, equation: Any, debug_info: Any, decomposition: Any) -> Rule:
        """The rule of a kept equation: the one already known for equal calls, or a new one."""
        key, identities = self._find(op, equation, decomposition)
        if key is None:
            key = self._new_key(_name(equation))
            call = jaxprs.equation_alone(lifting.of_operands(equation), debug_info)
            self._rules[key] = self._rule(key, op, equation, call, decomposition)
            self._keys.update(dict.fromkeys(identities, key))
        rule = user_rules.rule_inside(equation).rule
        if rule is not None and key not in self._assigned_again:
            name = rebinding.assigned_again(rule, self.keeper.tracebacks)
            if name is not None:
                self._assigned_again[key] = name
        return self._rules[key]

    def register_backward(self, equation: Any, debug_info: Any) -> Rule:
        """The rule of a linear call that JAX knows by its transpose only.

        Its forward map is the transpose of the user's backward rule.
        """
        key, identities = self._find("backward only", equation, None)
        if key is None:
            call = jaxprs.equation_alone(equation, debug_info)
            key = self._new_key(_name(equation))
            rule = self._rule(key, "pullback.linear_call", equation, call, None)
            try:
                with named_axes.tracing_context_of(rule.call, bool(rule.checked_axes)):
                    forward = staging.forward_of_backward(rule)
                lifting.check([forward])
            except LEAKS:
                raise _leaking(rule) from None
            except Exception as error:
                raise _no_forward(rule, error) from error
            self._keys.update(dict.fromkeys(identities, key))
            self._rules[key] = dataclasses.replace(rule, decomposition=self.keeper.keep(forward))
        return self._rules[key]

    def adopt(self, other: RuleTable, key: str) -> str:
        """The key here of a rule of another table, whose program is called in one of ours."""
        adopted = self._adopted.setdefault(id(other), (other, {}))[1]
        if key not in adopted:
            rule = other[key]
            if rule.batch is not None:  # of a rule that has a name of its own here, too
                of_one = self._rules[self.adopt(other, rule.batch.rule.key)]
                batch = dataclasses.replace(rule.batch, rule=of_one)
                rule = dataclasses.replace(rule, batch=batch)
            adopted[key] = self._new_key(key)
            self._rules[adopted[key]] = dataclasses.replace(rule, key=adopted[key])
        return adopted[key]

    def stage(self, module: ir.Module, key: str, kind: str, mask: str) -> str | tuple[str, str]:
        """Symbol(s) in `module` of a rule; traced, lowered and linked on first request.

        Args:
          module: the module to link the rule into.
          key: the rule's key, as in a composite's attribute `rule`.
          kind: 'jvp', 'vjp' (names of the forward and the backward function) or 'transpose'.
          mask: one character per inexact operand, '1' for perturbed. For 'vjp', '|' and one per
            inexact result may follow, '1' for one with a cotangent; those without are zero, which
            the rule sees if it has symbolic zeros.

        Raises:
          MissingRuleError: neither JAX nor the user's program has such a rule.
        """
        sources = self.sources(key, kind, mask)
        symbols = [link.merge_source(module, source) for source in sources]
        return symbols[0] if len(symbols) == 1 else (symbols[0], symbols[1])

    def sources(self, key: str, kind: str, mask: str) -> list[link.Source]:
        """What `stage` links, without linking it: a module for each function of the rule."""
        return self._sources(self._rules[key], kind, mask)

    def _sources(self, rule: Rule, kind: str, mask: str) -> list[link.Source]:
        if not rule.sees_zeros:
            mask = mask.partition("|")[0]
        if rule.batch is not None:
            return self._batched_sources(rule.batch, kind, mask)
        traced = self._traced_rule(rule, kind, mask)
        names = _symbols(rule, kind, mask)
        with self._under(rule.checked_axes):
            return [self._lower(*each) for each in zip(names, traced, strict=True)]

    def _batched_sources(self, batch: Batch, kind: str, mask: str) -> list[link.Source]:
        """The functions for one item, batched in a module of their own."""
        from pullback.passes.batching import Batching, Signature
        from pullback.passes.differentiation import Differentiation

        sources = self._sources(batch.rule, kind, mask)
        context = _jax.context()  # that of types and attributes which passes make
        with context, ir.Location.unknown(context), build.inserting(None):
            module = ir.Module.create()
            names = [link.merge_source(module, source) for source in sources]
            rule = batch.rule
            results = len(rule.call.out_avals), len(rule.inexact_results)
            signature = Signature(batch.flags, tuple(rule.inexact), *results)
            with Differentiation(module, self) as functions:
                batching = Batching(functions, batch.size)
                names = list(signature.functions(batching, kind, mask, names))
                batching.finish()
        library = link.Library(module)
        return [link.Source(library, name) for name in names]

    def batched(self, key: str, flags: tuple[bool, ...], size: int) -> str:
        """The key of the rule for a batch of calls, of whose operands those flagged are batched."""
        identity = "batch", key, flags, size
        if identity not in self._keys:
            new = self._keys[identity] = self._new_key(f"{key}.batched")
            rule = self._rules[key]
            batch = Batch(rule, flags, size)
            self._rules[new] = dataclasses.replace(rule, key=new, batch=batch)
        return self._keys[identity]

    def stops(self, key: str) -> bool:
        """Whether a call lets no tangent pass, which need not be staged to be known."""
        return self._rules[key].primitive in staging.STOPS

    def goes_forward(self, key: str) -> bool:
        """Whether a call with a backward rule has one for forward mode, too."""
        return self._rules[key].goes_forward

    def stage_all(self, module: ir.Module, order: int | None = None) -> None:
        """Stages every rule that `module` can need, to a fixpoint, and writes the symbols down.

        Rules of rules are staged too, so the module can then be differentiated any number of
        times without Python, or `order` times where that is given. What a rule says that refuses
        is written down in its place.
        """
        last = LAST_GENERATION if order is None else order - 1
        symbols: dict[str, dict[str, Any]] = {}
        without: set[str] = set()
        started: float | None = time.monotonic()
        while pending := _unstaged(module) or self._singled_out(module, symbols, without):
            for call, key in pending:
                if len(symbols) > MOST_RULES:
                    raise _endless(self._rules)
                if key not in symbols:
                    if started is not None and time.monotonic() - started > PATIENCE:
                        started = None
                        _warn_of_order(self._rules[key])
                    with _naming(self._rules[key]):
                        symbols[key] = self._all_symbols(module, self._rules[key], last)
                if not _rules_in(symbols[key]) and self._rules[key].generation <= last:
                    without.add(call.decomposition)
                call.update(**{RULE: None, **symbols[key]})

    def _singled_out(
        self, module: ir.Module, symbols: dict[str, dict[str, Any]], without: set[str]
    ) -> list[tuple[Any, str]]:
        """Calls that have new rules now: one for each operand, beside that for all at once.

        A rule for all operands may call what has no rule itself, as that of `igamma` does for its
        first operand. Who differentiates by the second one again must not need it.
        """
        keys = {}
        for key, found in symbols.items() if without else ():
            rule = self._rules[key]
            if _rules_in(found) == {"jvp"} and len(rule.inexact) > 1:
                function = ir.SymbolTable(module.operation)[found["jvp"]]
                if any(call.decomposition in without for call in ops.walk_calls(function)):
                    self._try(found, module, rule, "jvp", rule.single_masks)
                    keys[found["jvp"]] = key
        calls = ops.walk_calls(module) if keys else ()
        return [(c, keys[jvp]) for c in calls if (jvp := c.symbols.get("jvp")) in keys]

    @contextlib.contextmanager
    def lowering(self, lower: Callable[..., link.Source]) -> Iterator[None]:
        """For a while, this thread lowers rules in another way, such as into another context."""
        counts = len(self.host_callbacks), len(self.keepalives)
        token = _elsewhere.set((self, lower, {}))
        try:
            yield
        finally:
            _elsewhere.reset(token)
            del self.host_callbacks[counts[0] :], self.keepalives[counts[1] :]

    def _all_symbols(self, module: ir.Module, rule: Rule, last: int) -> dict[str, Any]:
        """Every rule of one call that there is, as attributes of its composite.

        Reverse mode by a rule of the last generation transposes the calls in it, and needs no more.
        """
        found: dict[str, Any] = {}
        if rule.generation > last + 1:
            return found
        if rule.op == "pullback.custom_vjp_call":
            if rule.generation <= last:
                self._vjp_symbols(found, module, rule)
                self._try(found, module, rule, "jvp", [rule.own_mask] * rule.goes_forward)
            return found
        if rule.op == "pullback.linear_call":
            with _noting(found, "transpose"):
                found["transpose"] = self.stage(module, rule.key, "transpose", rule.linear_mask)
            return found
        if rule.generation <= last and ("1" in rule.own_mask or not rule.inexact):
            self._try(found, module, rule, "jvp", [rule.own_mask])
            if not _rules_in(found) and (REFUSED not in found or rule.knows_operands_apart):
                self._try(found, module, rule, "jvp", rule.single_masks)
        if derivatives.has_transpose(rule.call.eqns[0]):
            self._transposes(found, module, rule)
        return found

    def _transposes(self, found: dict[str, Any], module: ir.Module, rule: Rule) -> None:
        """Adds the transposes of a call: for all operands, and for each that it is linear in.

        Beside residuals there may be many operands that it is linear in: these together, too.
        """
        masks = dict.fromkeys([rule.own_mask, *rule.single_masks])
        self._try(found, module, rule, "transpose", masks)
        accepted = [mask for mask in masks if f"transpose.{mask}" in found]
        if rule.own_mask not in accepted and len(accepted) > 1:
            joint = "".join(map(max, zip(*accepted, strict=True)))
            self._try(found, module, rule, "transpose", [joint] * (joint not in masks))

    def _vjp_symbols(self, found: dict[str, Any], module: ir.Module, rule: Rule) -> None:
        """Adds the pair for all operands; where it refuses, the one for those that it accepts."""
        own = rule.own_mask
        if rule.inexact and "1" not in own:
            return
        with _noting(found, "vjp"):
            found |= zip(("fwd", "bwd"), self.stage(module, rule.key, "vjp", own), strict=True)
            return
        accepted = []
        for mask in rule.single_masks if rule.knows_operands_apart else ():
            with _noting(found, f"vjp.{mask}"):
                self._traced_rule(rule, "vjp", mask)
                accepted.append(mask)
        if accepted:
            joint = "".join(map(max, zip(*accepted, strict=True)))
            with _noting(found, f"vjp.{joint}"):
                names = f"fwd.{joint}", f"bwd.{joint}"
                found |= zip(names, self.stage(module, rule.key, "vjp", joint), strict=True)

    def _try(
        self,
        found: dict[str, Any],
        module: ir.Module,
        rule: Rule,
        kind: str,
        masks: Iterable[str],
    ) -> None:
        """Adds to `found` the rules of this kind that there are."""
        for mask in masks:
            name = f"{kind}.{mask}" if kind == "transpose" or "0" in mask else kind
            try:
                with _noting(found, name):
                    found[name] = self.stage(module, rule.key, kind, mask)
            except LeakedValueError:
                raise
            except MissingRuleError:
                continue

    def _traced_rule(self, rule: Rule, kind: str, mask: str) -> tuple[Any, ...]:
        key = rule.key, kind, mask
        if key not in self._traced:
            self._traced[key] = self._trace(rule, kind, mask)
        return self._traced[key]

    def _trace(self, rule: Rule, kind: str, mask: str) -> tuple[Any, ...]:
        of_operands, _, of_results = mask.partition("|")
        if len(of_operands) != len(rule.inexact) or set(of_operands + of_results) - {"0", "1"}:
            raise ValueError(f"mask {mask!r} for {rule.key}, of {len(rule.inexact)} operands")
        if kind != "transpose" and rule.key in self._assigned_again:
            raise _assigned_again(rule, self._assigned_again[rule.key])
        self.traces += 1
        self._generation = rule.generation + 1
        outer, self.keeper.place = self.keeper.place, rule.where
        chosen = _marked(rule.inexact, of_operands)
        given = [_marked(rule.inexact_results, of_results)] if of_results else []
        try:
            checked = bool(rule.checked_axes)
            with (
                self._configuration(),
                tracing.whole_tracebacks(),
                named_axes.tracing_context_of(rule.call, checked),
            ):
                closed = staging.traced(rule, kind, chosen, *given)
            lifting.check(closed)
            for each in closed:
                self.keeper.check_order(each.effects)
            staging.check_results(rule, kind, closed)
            with self._under(rule.checked_axes):
                return tuple(self.keeper.keep(lifting.close(each)) for each in closed)
        except LEAKS:
            raise _leaking(rule) from None
        except MissingRuleError:
            raise
        except Exception as error:
            kernels.check_grid(error, kind, rule.key, rule.where)
            if staging.says_missing(rule, kind, error):
                raise _missing(rule, kind, chosen, error) from error
            error.add_note(f"in the {kind} rule of `{rule.key}`, called at {rule.where}")
            raise
        finally:
            self._generation = 0
            self.keeper.place = outer

    def _lower(self, name: str, closed: Any) -> link.Source:
        """The function of a rule, lowered on first request."""
        here = self, self.lowered.lower, self._sources_of
        table, lower, lowered = _elsewhere.get() or here
        if table is not self:  # a rule may trace programs of its own
            _, lower, lowered = here
        if id(closed) not in lowered:
            checked = bool(self._checked_axes)
            with self._configuration(), named_axes.tracing_context_of(closed, checked):
                lowered[id(closed)] = lower(name, closed)
        return lowered[id(closed)]

    def _find(self, op: str, equation: Any, decomposition: Any) -> tuple[str | None, list[Any]]:
        """The key of the rule of an equal call, if there is one; and what tells whether it is."""
        identities = []
        for by_contents in (False, True) if self._generation else (False,):
            identity = self._identity(equation, decomposition, by_contents)
            identities.append((op, self._checked_axes, by_contents, identity))
            if (key := self._keys.get(identities[-1])) is not None:
                return key, identities
        return None, identities

    def _identity(self, equation: Any, decomposition: Any, by_contents: bool) -> Any:
        self._identities.begin(by_contents)
        types = tuple(atom.aval for atom in equation.invars)
        functions = user_rules.rule_functions(equation)
        if functions is None:
            params = self._identities.parameters(equation.params)
            return equation.primitive.name, types, params
        function = self._identities.rules(equation, functions)
        primal = None if decomposition is None else self._identities.jaxpr(decomposition)
        return types, function, primal

    def _rule(self, key: str, op: str, equation: Any, call: Any, decomposition: Any) -> Rule:
        return Rule(
            key=key,
            op=op,
            primitive=equation.primitive.name,
            call=call,
            decomposition=decomposition,
            num_residuals=user_rules.num_residuals(equation),
            where=self.keeper.place or "an unknown line",
            generation=self._generation,
            checked_axes=self._checked_axes,
            closed_over=user_rules.rule_inside(equation).closed_over,
        )

    def _new_key(self, name: str) -> str:
        key, number = name, 0
        while key in self._rules:
            number += 1
            key = f"{name}_{number}"
        return key


def _symbols(rule: Rule, kind: str, mask: str) -> tuple[str, ...]:
    key = rule.key
    suffix = "" if "0" not in mask else f".{mask.replace('|', '.')}"
    if kind == "vjp":
        return f"{key}.fwd{suffix}", f"{key}.bwd{suffix}"
    if kind == "transpose" and rule.op == "pullback.linear_call" and mask == rule.linear_mask:
        return (f"{key}.t",)
    if kind == "transpose":
        return (f"{key}.t.{mask}",)
    return (f"{key}.jvp{suffix}",)


def _name(equation: Any) -> str:
    return link.identifier(user_rules.rule_name(equation) or equation.primitive.name)


def _marked(positions: list[int], mask: str) -> list[int]:
    return [i for i, bit in zip(positions, mask, strict=True) if bit == "1"]


def _unstaged(module: ir.Module) -> list[tuple[Any, str]]:
    calls = ops.walk_calls(module)
    return [(call, key) for call in calls if (key := call.rule_key) is not None]


def _rules_in(found: dict[str, Any]) -> set[str]:
    return found.keys() - {REFUSED}


@contextlib.contextmanager
def _noting(found: dict[str, Any], name: str) -> Iterator[None]:
    """Writes down what the rule of this name says where it refuses."""
    try:
        yield
    except Exception as error:
        said = refusals.to_write_down(error)
        if said is None:
            raise
        found.setdefault(REFUSED, {})[name] = said


@contextlib.contextmanager
def _naming(rule: Rule) -> Iterator[None]:
    """Raises what goes wrong in a user's rule as an error that names the rule and the line."""
    try:
        yield
    except PullbackError:
        raise
    except Exception as error:
        line = locations.of_error(error)
        raise MissingRuleError(
            f"the rule of `{rule.key}` cannot be written into the program: {_said(error)}",
            where=f"{line}, in the rule of the call at {rule.where}" if line else rule.where,
            do="let the rule use functions that JAX can trace, on its arguments only; or, if it is "
            "not needed, save with allow_refusals=True: the file raises this where it is asked for",
        ) from error


def _said(error: Exception) -> str:
    """The first line of an error."""
    reason = str(error).partition("\n")[0]
    return f"{type(error).__name__}: {reason}" if reason else type(error).__name__


def _leaking(rule: Rule) -> LeakedValueError:
    name = rule.key.removesuffix("_forward")
    return LeakedValueError(
        f"the rule of `{name}` uses a value of the function around it, which is not there when "
        "the rule runs",
        where=rule.where,
        do="pass the value as an argument of the function, and on to the backward rule of a "
        "custom_vjp as a residual",
    )


def _assigned_again(rule: Rule, name: str) -> LeakedValueError:
    return LeakedValueError(
        f"the rule of `{rule.key}` uses `{name}`, which is assigned again after the call, or "
        "deleted, and the rule runs later",
        where=rule.where,
        do=f"keep its value with a default argument of the rule, `{name}={name}`, or make the "
        "function with the rule in a function of its own",
    )


def _warn_of_order(rule: Rule) -> None:
    warnings.warn(
        f"staging rules takes long: `{rule.key}`, called at {rule.where}, is for derivatives of "
        f"order {rule.generation + 1}, and there may be ever more; order=1, or 2, stages those "
        "for derivatives up to that order",
        stacklevel=2,
    )


def _endless(rules: dict[str, Rule]) -> MissingRuleError:
    """There seem to be more and more rules of one primitive; names it."""
    primitive, count = Counter(r.primitive for r in rules.values()).most_common(1)[0]
    return MissingRuleError(
        f"the rules of rules of `{primitive}` come to no end: there are {count} now",
        where=next(r.where for r in rules.values() if r.primitive == primitive),
        do="save with order=1, or 2, for derivatives up to that order; or wrap the step in a "
        "function with a rule of its own (jax.custom_jvp or custom_vjp)",
    )


def _no_forward(rule: Rule, error: Exception) -> MissingRuleError:
    name = rule.key.removesuffix("_forward")
    return MissingRuleError(
        f"no jvp rule for a custom_vjp function: its backward rule `{name}` cannot be transposed: "
        f"{_said(error)}",
        where=rule.where,
        do="give the function a forward rule with jax.custom_jvp, or make its backward rule "
        "linear in the cotangent",
    )


def _missing(rule: Rule, kind: str, chosen: list[int], error: Exception) -> MissingRuleError:
    positions = ", ".join(map(str, chosen))
    return MissingRuleError(
        f"JAX has no {kind} rule for `{rule.key}` with respect to operand {positions}: "
        f"{_said(error)}",
        where=rule.where,
        do="wrap this step in jax.custom_vjp or jax.custom_jvp",
    )
