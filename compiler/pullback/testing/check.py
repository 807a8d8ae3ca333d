"""Check that the rules of a program's functions are what they say: derivatives."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax

from pullback import Program, trace
from pullback._jax import (
    call_operands,
    holders,
    jaxprs,
    named_axes,
    source_info,
    tracing,
    user_rules,
)
from pullback._jax.tangent_types import is_inexact
from pullback.as_jax.derivative_ops import ATTRIBUTE, RuleInModule
from pullback.as_jax.function import check_values
from pullback.autodiff import registry
from pullback.errors import PullbackError, headline
from pullback.frontend.closures import reflect
from pullback.frontend.rules.kept_call import KeptCall
from pullback.ir import locations
from pullback.ir.masks import Asked
from pullback.program.record import traced_jaxpr
from pullback.program.symbolic import SymbolicProgram
from pullback.testing.comparison import Comparison
from pullback.testing.findings import Finding, Report
from pullback.testing.intended import is_intended
from pullback.testing.points import Point, points
from pullback.testing.slopes import Draw
from pullback.testing.solves import check_solve
from pullback.testing.subjects import Subject, inexact
from pullback_runtime.call._avals import is_key

USERS = ("custom_jvp_call", "custom_vjp_call", "linear_call", "call_hi_primitive")

RULES_OF_RULES = 2
"""To this depth are rules of functions checked that only rules call."""

MOST_EXAMPLES = 2
"""So many calls of one function are examples."""

BUDGET = 5.0
"""Seconds after which no more points of one rule are taken, but for the first."""

TOLERANCE = 1e-3
"""The largest relative difference; of narrow types, eight units in the last place."""

Watcher = Callable[[KeptCall, int, int], None]
"""Is told of each rule before it is checked: the rule, its number, and how many are known."""


def check_rules(
    f_or_program: Callable[..., Any] | Program | SymbolicProgram,
    *args: Any,
    order: int = 2,
    tolerance: float = TOLERANCE,
    seed: int = 0,
    inputs: tuple[float, float] | None = None,
    raises: bool = True,
    installed: bool = False,
    watcher: Watcher | None = None,
) -> Report:
    """Check the rules of all functions that a program calls against these functions.

    Each rule is checked at the operands that reach its calls when the program runs, at random
    points near these, and at special ones: zeros, ties, negative and large numbers. The points of
    a function that iterates are only those near examples. Compared are the derivatives in each
    mode with slopes, in 64 bits where the function can be computed so; the modes with each other;
    the values that rules return with those of the function; and a batch with its items.

    Args:
      f_or_program: a function, or a program, traced, derived or loaded. The rules of a program
        that is not as `pb.trace` returned it are those in its module.
      args: of the function: arrays, or `jax.ShapeDtypeStruct`s, for which numbers are random.
      order: up to which derivatives are compared; 2 finds a rule that has lost its own derivative.
      tolerance: the largest relative difference.
      seed: of the random numbers.
      inputs: between these are the random numbers that stand for `jax.ShapeDtypeStruct`s; and
        there are no special points then.
      raises: raise WrongRuleError if a rule is wrong.
      installed: check also the rules that installed packages use inside of them. Such a rule may
        hold only for the values that its package calls it with.
      watcher: a function to tell of each rule before it is checked.

    Returns:
      A report, which has a `Finding` for each check of each rule: 'ok', 'FAIL', or 'doubtful'
      with a reason.

    Raises:
      WrongRuleError: a rule is wrong.
      PullbackError: the function cannot be traced; dimensions of the program are symbols; it calls
        no function with rules to check; it is called while JAX traces, or other processes have a
        part of an argument.
    """
    check_values("testing.check_rules", args)
    program = _traced(f_or_program, args)
    draw = Draw(seed) if inputs is None else Draw(seed, inputs)
    check = _Check(program, draw, order, tolerance, inputs is None, installed)
    report = Report(tuple(check.findings(args, watcher)), len(check.left_out))
    if raises:
        report.raise_for_failures()
        if not report.findings:
            raise _nothing_checked(report)
    return report


def _nothing_checked(report: Report) -> PullbackError:
    """Return the error of a check that would pass whatever the rules are."""
    if report.left_out:
        return PullbackError(
            "nothing was checked: the program has rules of installed packages only",
            do="check them: check_rules(…, installed=True)",
        )
    return PullbackError(
        "nothing was checked: the program calls no function that has a derivative rule",
        do="give a function that calls one with custom_jvp, custom_vjp or linear_call",
    )


def _traced(f_or_program: Any, args: Sequence[Any]) -> Any:
    """Return a program whose rules are in Python: that of a loaded one's function of JAX."""
    given = f_or_program
    if not isinstance(f_or_program, Program | SymbolicProgram):
        return trace(given)(*args)
    if isinstance(given, SymbolicProgram):
        raise PullbackError(
            "check_rules wants sizes, and the program has symbolic dimensions",
            where=repr(given),
            do="give them: check_rules(program.with_sizes(…))",
        )
    if traced_jaxpr(given) is not None:
        return given
    args, kwargs = jax.tree.unflatten(given.in_tree, given.in_avals)
    return trace(given.as_jax())(*args, **kwargs)


@dataclass
class _Check:
    program: Any
    draw: Draw
    order: int
    tolerance: float
    special: bool
    installed: bool
    label: str = "example"
    left_out: set[str] = field(default_factory=set)

    def findings(self, args: Sequence[Any], watcher: Watcher | None) -> Iterator[Finding]:
        """Yield the findings of all rules; those of rules' rules appear when these are traced."""
        rules = self.program.rules
        met, done = self._met(args), set[str]()
        while new := [key for key in rules if key not in done]:
            done.update(new)
            for key in new:
                rule = rules[key]
                if not _is_checked(rule):
                    continue
                if not self.installed and _is_of_package(rule):
                    self.left_out.add(key)
                    continue
                if watcher is not None:
                    watcher(rule, len(done) - len(new) + new.index(key), len(done))
                found = met.get(key, [])
                with named_axes.mesh_unset_in_bodies(rule.call):
                    yield from self._of_rule(rule, found)
                if rule.generation < RULES_OF_RULES:
                    self._enter_rules_of(rule, found, met)

    def _met(self, args: Sequence[Any]) -> dict[str, list[call_operands.Met]]:
        """Return the calls that the program reaches, with their operands, by key."""
        closed = traced_jaxpr(self.program)
        kept = self.program.rules.keeper.keep(closed)
        arguments = [*self.program.constants, *self._arguments(args, closed)]
        found: dict[str, list[call_operands.Met]] = {}
        hidden = len(self.program.constants)
        moves = [i >= hidden and is_inexact(aval) for i, aval in enumerate(closed.in_avals)]
        self._add(found, call_operands.calls_met(kept, arguments, moves))
        return found

    def _add(
        self, found: dict[str, list[call_operands.Met]], calls: Iterator[call_operands.Met]
    ) -> None:
        with contextlib.suppress(Exception):  # of a call whose operands are then random
            for met in calls:
                found.setdefault(met.key, []).append(met)

    def _arguments(self, args: Sequence[Any], closed: Any) -> list[Any]:
        avals = closed.in_avals[len(self.program.constants) :]
        leaves = jax.tree.leaves(args)
        if len(leaves) != len(avals) or any(isinstance(x, jax.ShapeDtypeStruct) for x in leaves):
            self.label = "of random arguments"
            leaves = leaves if len(leaves) == len(avals) else [None] * len(avals)
        pairs = zip(leaves, avals, strict=True)
        return [
            self._random(aval)
            if leaf is None or isinstance(leaf, jax.ShapeDtypeStruct)
            else jax.numpy.asarray(leaf, None if is_key(aval) else aval.dtype)
            for leaf, aval in pairs
        ]

    def _random(self, aval: Any) -> Any:
        """Return random floats or booleans.

        Integers are one, which is in the range of an index, and so are the words of random keys.
        """
        if is_inexact(aval):
            return jax.numpy.asarray(self.draw.point(aval))
        if aval.dtype == bool:
            return jax.numpy.asarray(self.draw.generator.integers(0, 2, aval.shape), bool)
        return jax.numpy.ones(aval.shape, aval.dtype)

    def _enter_rules_of(
        self, rule: KeptCall, found: list[call_operands.Met], met: dict[str, Any]
    ) -> None:
        """Trace a rule, which enters the calls in it into the table; and run it for their operands.

        What a rule that cannot be traced raises is reported as its failure.
        """
        rules = self.program.rules
        known = set(rules)
        traced: dict[str, tuple[Any, ...]] = {}
        for kind in ("jvp", "vjp"):
            with contextlib.suppress(Exception):
                traced[kind] = rules.traced_rule(rule, kind, Asked(rule.own_mask))
        if not found or known == set(rules):
            return
        operands = found[0].operands
        if "jvp" in traced:
            tangents = [self.draw.numbers(operands[i]) for i in _moved(rule)]
            self._add(met, _run(traced["jvp"][0], [*operands, *tangents]))
        if "vjp" in traced:
            fwd, bwd = traced["vjp"]
            self._add(met, _run(fwd, operands))
            self._add(met, self._run_backward(fwd, bwd, operands, len(rule.call.out_avals)))

    def _run_backward(
        self, fwd: Any, bwd: Any, operands: list[Any], count: int
    ) -> Iterator[call_operands.Met]:
        results = tracing.apply(fwd, operands)
        cts = [self.draw.numbers(x) for x in inexact(results[:count])]
        yield from _run(bwd, [*results[count:], *cts])

    def _of_rule(self, rule: KeptCall, met: list[call_operands.Met]) -> Iterator[Finding]:
        loaded = _rule_in_module(rule)
        if loaded and not loaded.rules:  # no derivative of the module needs one
            return
        if loaded:
            places = _written(loaded, rule), loaded.where
        else:
            own = user_rules_of(rule)
            lines = " and ".join(dict.fromkeys(map(_lines, own))) or "a rule of JAX's"
            is_target = rule.where == locations.UNKNOWN and rule.generation == 0 and own
            places = lines, "the target itself" if is_target else rule.where
        blank = Finding("ok", _name(rule), "", *places)
        operands, label = [each.operands for each in met[:MOST_EXAMPLES]], self.label
        is_solve = rule.primitive == call_operands.SOLVE
        if rule.key.startswith("custom_root") and not source_info.is_of_user(rule.call):
            reason = "what its functions close over belongs together, which other points do not"
            yield replace(blank, verdict="doubtful", check="root", reason=reason)
            return
        if named_axes.varies(rule.call):
            reason = (
                "it is called in the body of a shard_map whose types say what varies over devices: "
                "check the function by itself, or give shard_map check_vma=False"
            )
            yield replace(blank, verdict="doubtful", check="shard_map", reason=reason)
            return
        if not operands:
            if is_solve or (rule.closed_over and not rule.generation):
                reason = "the call is not reached with these arguments, so nothing is known here"
                yield replace(blank, verdict="doubtful", check="reach", reason=reason)
                return
            operands, label = [[*map(self._random, rule.call.in_avals)]], "random"
        try:
            with rule.as_called():
                if is_solve:
                    is_example = self.label == "example"
                    yield from check_solve(rule, operands[0], is_example, blank, self.draw)
                else:
                    yield from self._closed_over(rule, met, blank)
                    yield from self._compared(rule, operands, label, blank)
        except PullbackError as error:
            yield replace(blank, verdict="FAIL", check="trace", reason=headline(error))

    def _closed_over(
        self, rule: KeptCall, met: list[call_operands.Met], blank: Finding
    ) -> Iterator[Finding]:
        """Report values that a function closes over, by which it has no derivative."""
        for i in range(rule.closed_over if rule.generation == 0 else 0):
            aval = rule.call.in_avals[i]
            if is_inexact(aval) and any(each.moves[i] for each in met):
                yield replace(
                    blank,
                    verdict="FAIL",
                    check="closed over",
                    reason="the function closes over a value that depends on the program's "
                    "arguments; by these it has no derivative, and to ask for one raises",
                    at_fault=f"a value of type {aval.str_short()}: pass it as an argument",
                )

    def _compared(
        self, rule: KeptCall, operands: list[list[Any]], label: str, blank: Finding
    ) -> Iterator[Finding]:
        moved = _moved(rule)
        if not moved or not rule.inexact_results:
            return
        alone = [(i,) for i in moved] if rule.sees_zeros and len(moved) > 1 else []
        intended = any(map(is_intended, user_rules_of(rule)))
        of_user = source_info.is_of_user(rule.call) or _rule_in_module(rule) is not None
        last = self.order if of_user and not intended else 1
        composite = _composite(rule)
        for some in (tuple(moved), *alone):
            subject = _subject(rule, some, operands[0], composite)
            name = _name(rule)
            if len(some) < len(moved):
                name += f" by {subject.names[some[0]]} alone"
            special = self.special and not subject.has_loops
            chosen = points(operands, label, some, self.draw, special)
            yield from self._by(subject, list(chosen), replace(blank, name=name), intended, last)

    def _by(
        self, subject: Subject, chosen: list[Point], blank: Finding, intended: bool, last: int
    ) -> Iterator[Finding]:
        """Check derivatives up to an order; rules of JAX's and intended ones stop at the first."""
        for order in range(1, last + 1):
            if order > 1:
                subject, chosen = self._derived(subject, chosen)
            comparison = Comparison(subject, blank, self.tolerance, self.draw, order, intended)
            yield from self._run(comparison, chosen)
            if comparison.broken:
                return

    def _run(self, comparison: Comparison, chosen: list[Point]) -> Iterator[Finding]:
        end = time.monotonic() + BUDGET
        left = list(chosen)
        while left and (len(left) == len(chosen) or time.monotonic() < end):
            comparison.at(left.pop(0))
        if left:
            reason = f"{BUDGET:g} s were over; not compared: {', '.join(x.label for x in left)}"
            comparison.tally("points").skip(reason)
        has_values = any(tally.sure for tally in comparison.tallies.values())
        if comparison.order == 1 and has_values:
            comparison.linearity(chosen[0])
            comparison.duality(chosen[0])
            comparison.batch(chosen[0], chosen[1])
        elif comparison.order == 2 and has_values:
            comparison.symmetry(chosen[0], len(comparison.subject.moved))
        for check, tally in comparison.tallies.items():
            is_left_out = comparison.intended and check in comparison.subject.modes
            if not is_left_out or tally.failure:
                yield tally.finding

    def _derived(self, subject: Subject, chosen: list[Point]) -> tuple[Subject, list[Point]]:
        """Return the derivative by the rule, in a random direction, and points of it."""
        mode = subject.modes[0]
        like = [subject.example[i] for i in subject.moved]
        if mode == "vjp":
            like = subject.plain(*subject.example)
        directions = [self.draw.numbers(x, signed=True) for x in like]
        extended = [replace(each, operands=[*each.operands, *directions]) for each in chosen]
        return subject.derivative(mode, directions), extended


def _run(jaxpr: Any, operands: list[Any]) -> Iterator[call_operands.Met]:
    return call_operands.calls_met(jaxpr, operands, [False] * len(operands))


def _is_checked(rule: KeptCall) -> bool:
    is_solve = rule.primitive == call_operands.SOLVE
    is_map = rule.op == "pullback.linear_call" and not rule.generation
    is_map = is_map and _rule_in_module(rule) is not None  # of `program.as_jax()`
    if not (is_solve or is_map or rule.primitive in USERS) or "1" not in rule.own_mask:
        return False
    if is_solve and rule.generation:  # those of rules are its derivatives
        return False
    return not (rule.generation or is_solve) or source_info.is_of_user(rule.call)


def _is_of_package(rule: KeptCall) -> bool:
    """Return True if an installed package has the rule, and calls it for its own ends.

    Where a package wraps a rule of the user's, the first line outside of that file is the user's.
    """
    files = {function.__code__.co_filename for function in user_rules_of(rule)}
    if not any(map(locations.is_installed, files)):
        return False
    callers = (file for file, *_ in source_info.user_frames(_call(rule)) if file not in files)
    return locations.is_installed(next(callers, ""))


def _call(rule: KeptCall) -> Any:
    return rule.call.eqns[0]


def _moved(rule: KeptCall) -> list[int]:
    first = max(rule.closed_over, rule.num_residuals or 0)
    return [i for i in rule.inexact if i >= first]


def _subject(
    rule: KeptCall,
    moved: tuple[int, ...],
    example: list[Any],
    composite: Callable[..., list[Any]] | None,
) -> Subject:
    call = tracing.equations_to_function(rule.call)

    def function(*operands: Any) -> list[Any]:
        return inexact(call(*operands))

    both = rule.primitive == "linear_call" or rule.goes_forward
    origin = _rule_in_module(rule)
    backward = origin.is_backward if origin else rule.op == "pullback.custom_vjp_call"
    modes = ("jvp", "vjp") if both or not backward else ("vjp",)
    many = len(rule.inexact_results) > 1
    results = tuple(f"result {n}" if many else "result" for n in range(len(rule.inexact_results)))
    names = _names(rule)
    return Subject(function, moved, names, results, example, modes, composite=composite)


def _function_name(rule: KeptCall) -> str:
    """Return the name that the function of a call has in Python, or of the composite that it is."""
    body = holders.called_function(_call(rule))
    return "" if body is None else jaxprs.opened(body).debug_info.func_name


def _name(rule: KeptCall) -> str:
    """Return the name of a call in a report: that of a composite, or the symbol of a function."""
    name = _function_name(rule)
    return name if name in registry.RULES else rule.key


def _written(origin: RuleInModule, rule: KeptCall) -> str:
    """Return where the rule of a loaded module comes from, with the lines of a registered one."""
    registered = registry.RULES.get(_function_name(rule))
    if registered is None:
        return origin.rules
    written = [
        _lines(each)
        for each in (registered.jvp, registered.vjp)
        if getattr(each, "__module__", "") == registered.module and inspect.isfunction(each)
    ]
    return f"{origin.rules}{': ' if written else ''}{' and '.join(written)}"


def _names(rule: KeptCall) -> tuple[str, ...]:
    """Return the names of a call's operands: those in its function, or in its forward rule."""
    body, count = holders.called_function(_call(rule)), len(rule.call.in_avals)
    names = jaxprs.opened(body).debug_info.arg_names if body is not None else None
    if (names is None or len(names) != count) and rule.op == "pullback.custom_vjp_call":
        codes = [function.__code__ for function in user_rules_of(rule)[:1]]
        names = next((code.co_varnames[: code.co_argcount] for code in codes), None)
        names = names and [*[None] * rule.closed_over, *names]
    if names is None or len(names) != count:
        return tuple(f"operand {i}" for i in range(count))
    return tuple(name or f"operand {i}" for i, name in enumerate(names))


def user_rules_of(rule: KeptCall) -> list[Any]:
    """Return the functions of the user's that a call's rules are, as far as they are known."""
    functions = map(reflect.of_user, user_rules.written(_call(rule)))
    return [function for function in functions if function is not None]


def _rule_in_module(rule: KeptCall) -> RuleInModule | None:
    """Return where a rule comes from that a file had; None for one in Python."""
    reached = itertools.chain(*map(reflect.reachable, user_rules.written(_call(rule))))
    found = (getattr(each, ATTRIBUTE, None) for each in reached if inspect.isfunction(each))
    return next(filter(None, found), None)


def _composite(rule: KeptCall) -> Callable[..., list[Any]] | None:
    """Return what calls the composite of a loaded module that has a registered rule; else None."""
    origin = _rule_in_module(rule)
    call = None if origin is None else origin.call
    return None if call is None else lambda *operands: inexact(call(*operands))


def _lines(function: Any) -> str:
    code = function.__code__
    place = locations.of_code(code)
    with contextlib.suppress(OSError, TypeError):
        count = len(inspect.getsourcelines(function)[0])
        place += f"-{code.co_firstlineno + count - 1}" if count > 1 else ""
    return f"{code.co_name} at {place}"
