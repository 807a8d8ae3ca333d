"""The table of derivative rules, one entry per op, and the families most ops belong to.

A rule answers three questions about one op:

- `jvp(op, tangents)`: the tangents of its results, given those of its operands;
- `vjp(op, cts)`: the cotangents of its operands, given those of its results;
- `linear(active)`: is the op linear, jointly, in these operands? `vjp` is then its transpose.

`None` is a zero: in what a rule receives and in what it returns. Rules never test for it in their
arithmetic, since the builders absorb it; a rule with several results or operands may skip work.
`op.x`, `op.lhs`, `op.operand(i)`, `op.result` reach primal values, wherever the driver keeps them;
`op.operands[i].type` and `op.attributes` are free. Rules never set locations or insertion points.

Cotangents follow JAX: the transpose of `t -> p t` is `ct -> p ct`, without a conjugate.
"""

from __future__ import annotations

import functools
import importlib
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import entry_points
from typing import Any, NamedTuple

from pullback.autodiff.batch_rules import batch_alike
from pullback.errors import DuplicateRuleError, MissingRuleError, PluginError, RuleResultError
from pullback.ir import build
from pullback.ir.build import Value, add, inexact
from pullback.ir.locations import user_line
from pullback.ir.traits import ELEMENTWISE

Mask = Sequence[bool]
Tangents = Sequence[Value | None]


class Op:
    """An op as a rule sees it: read once, with its primal values at hand."""

    __slots__ = ("active", "frame", "info", "operands", "operation", "results", "rule", "wide")

    def __init__(
        self,
        operation: Any,
        operands: list[Value],
        results: list[Value],
        active: list[bool],
        rule: Rule,
        frame: Any,
    ) -> None:
        self.operation = operation
        self.operands = operands  # operands, then values captured by regions
        self.results = results
        self.active = active  # one flag per entry of `operands`
        self.rule = rule
        self.frame = frame
        self.info: Any = None  # what a rule found out in `activity`, for its other methods
        self.wide: Sequence[Any] = ()  # types of the cotangents, if some have other elements

    @property
    def name(self) -> str:
        return self.rule.name

    def operand(self, index: int) -> Value:
        return self.operands[index]

    @property
    def x(self) -> Value:
        return self.operands[0]

    lhs = x

    @property
    def rhs(self) -> Value:
        return self.operands[1]

    @property
    def result(self) -> Value:
        return self.results[0]

    @property
    def attributes(self) -> Any:
        return self.operation.attributes

    def shape(self, index: int) -> tuple[int, ...]:
        return build.info(self.operands[index].type).shape

    @property
    def result_type(self) -> Any:
        return self.results[0].type

    def instantiate(self, t: Value | None, v: Value) -> Value:
        """Return a tangent or cotangent of a primal value; zeros if it is a symbolic zero.

        Zeros of dynamic shape take their size from the primal value, which may be elsewhere.
        """
        dynamic = t is None and -1 in build.shape(v)
        return build.instantiate(t, self.frame.primal(v) if dynamic else v)


class FarOp(Op):
    """An op whose primal values are elsewhere: its frame brings those that a rule reads."""

    __slots__ = ()

    def operand(self, index: int) -> Value:
        return self.frame.primal(self.operands[index])

    @property
    def x(self) -> Value:
        return self.frame.primal(self.operands[0])

    lhs = x

    @property
    def rhs(self) -> Value:
        return self.frame.primal(self.operands[1])

    @property
    def result(self) -> Value:
        return self.frame.primal(self.results[0])


class Part(NamedTuple):
    """A value and where it starts in another."""

    start: Sequence[int]
    value: Value


class InPlace:
    """A cotangent contribution that updates the accumulator instead of being added to it.

    The cotangent of a slice touches few elements: adding a full-size array of zeros for each
    would make a loop over slices quadratic.

    Attributes:
      part: what is added, if that is one part of the accumulator.
    """

    __slots__ = ("part", "update")

    def __init__(self, update: Callable[[Value], Value], part: Part | None = None) -> None:
        self.update = update
        self.part = part


Jvp = Callable[[Op, Tangents], Sequence[Value | None]]
Vjp = Callable[[Op, Tangents], Sequence[Any]]
Expand = Callable[[Op, Sequence[Value]], Sequence[Value]]

Row = Sequence[Value | None]
"""Hold what is carried with a value: its tangent in forward mode, coefficients in Taylor mode."""

Carry = Callable[[Op, Sequence[Row | None]], Sequence[Row | None]]


@dataclass(frozen=True, eq=False)
class Rule:
    """The derivative rules of an op; see the docstring of the module."""

    name: str
    jvp: Jvp
    vjp: Vjp
    linear: Callable[[Mask], bool]
    module: str
    family: str
    keeps_type: bool = False  # results are inexact whenever an operand is active
    alike: bool = False  # operands and result have one type, each element is one of its own
    elementwise: bool = (
        False  # operands of the result's shape act element by element; so does the vjp
    )
    diagonal: Callable[[Op, Tangents], bool] | None = None  # for an op that calls: `elementwise` of
    # what it calls, for cotangents of these results
    chooses: bool = False  # `vjp` takes and gives cotangents that wait: autodiff/pending.py
    hands_on: bool = False  # `vjp` takes cotangents of other element types than the results have
    by_result: bool = False  # the derivative is computed of the result alone
    compares: bool = False  # `vjp` compares the result with operands, to the last bit
    regions: bool = False  # regions may capture active values
    reads: tuple[str, ...] | None = None  # attributes the rule looks at, and at types: no more
    copies: bool = False  # `jvp` copies the op, with all its attributes
    activity: Callable[[Op], Sequence[bool]] | None = None  # which results are active
    reached: Callable[[Op, Mask], Sequence[bool]] | None = None  # the operands, by which results
    expand: Expand | None = None  # emits other ops that compute the same
    carry: Carry | None = None  # `jvp` for rows: control flow that carries the terms of each value
    series: Callable[..., Any] | None = None  # finds Taylor coefficients: autodiff/taylor.py
    variant: Callable[[Op], Rule] | None = None  # the rule to use instead, by what the op does;
    # with `reads`, some of these rules have them

    plain: bool = field(init=False)  # an active operand makes all results so, and no more is told
    checked: bool = field(init=False)  # the driver checks types; the tests have checked ours
    runs_once: bool = field(init=False)  # in reverse, for all ops of a signature

    def __post_init__(self) -> None:
        special = self.regions or self.activity is not None
        is_last = self.variant is None
        if is_last and self.reads is not None and (special or not self.keeps_type):
            raise TypeError(
                f"the rule for `{self.name}` with reads= needs keeps_type=True, and no regions or "
                "activity: it runs for what is known of types"
            )
        ours = self.module.startswith("pullback.rules.")
        object.__setattr__(self, "elementwise", self.elementwise or self.alike)
        object.__setattr__(self, "plain", self.keeps_type and not special and is_last)
        object.__setattr__(self, "checked", not ours)
        object.__setattr__(self, "runs_once", self.reads is not None and not self.chooses)


RULES: dict[str, Rule] = {}
NONDIFFERENTIABLE: dict[str, str] = {}  # op -> why its derivative is zero everywhere
_ZERO_IN: dict[str, str] = {}  # op -> the module that says so


def register(rule: Rule) -> Rule:
    """Register a rule; a second one for the same op is an error that names both modules."""
    _refuse_second(rule.name, rule.module)
    RULES[rule.name] = rule
    return rule


def _refuse_second(name: str, module: str) -> None:
    taken = RULES[name].module if name in RULES else _ZERO_IN.get(name)
    if taken is not None:
        raise DuplicateRuleError(
            f"two rules for `{name}`", where=f"{taken} and {module}", do="remove one of them"
        )


def unsupported(op: Op, what: str, do: str) -> MissingRuleError:
    """Return the error for a form of an op that has no derivative rule."""
    return MissingRuleError(
        f"no derivative rule for `{op.name}` {what}",
        where=user_line(op.operation.location),
        do=do,
    )


# ------------------------------------------------------------------------------- linearity


def never(active: Mask) -> bool:
    return False


def jointly(active: Mask) -> bool:
    return True


def by_its_parts(active: Mask) -> bool:
    """Return True: the ops that compute this one are checked instead."""
    return True


def apart(active: Mask) -> bool:
    """Return True: the op is linear, and each operand goes to a result of its own."""
    return True


def separately(active: Mask) -> bool:
    """Return True if at most one operand is active: the op is linear in each, others fixed."""
    return sum(active) <= 1


def only_in(*positions: int) -> Callable[[Mask], bool]:
    """Return a predicate for ops jointly linear in operands at `positions`, and in no other."""
    return lambda active: not any(a for i, a in enumerate(active) if i not in positions)


# -------------------------------------------------------------------------------- families

Scale = Callable[[Op, Value], Value | None]


def elementwise(
    name: str,
    *scale: Scale | None,
    linear: Callable[[Mask], bool] = never,
    by_result: bool = False,
) -> Rule:
    """Register an op that acts on each element by itself.

    `scale[i](op, t)` is t times its i-th partial derivative. A diagonal linear map is its own
    transpose, so one formula serves both modes.
    `None` marks an operand without a derivative (a predicate). `by_result` says that the factors
    are computed of the result, and of no operand: then reverse mode stores that one.
    """

    def jvp(op: Op, tangents: Tangents) -> list[Value | None]:
        total = None
        for f, t in zip(scale, tangents, strict=True):
            if f is not None and t is not None:
                total = add(total, f(op, t))
        return [total]

    given = [f for f in scale if f is not None]
    if not given:
        raise TypeError(f"elementwise({name!r}) without a formula: see nondifferentiable")
    module, vjp = given[0].__module__, _diagonal_vjp(*scale)
    rule = Rule(name, jvp, vjp, linear, module, "elementwise", keeps_type=True, elementwise=True)
    rule = replace(rule, by_result=by_result)
    if rule.checked:
        count = len(scale)
        rule = replace(rule, jvp=_counted(count, jvp), vjp=_counted(count, vjp))
    else:
        rule = replace(rule, reads=(), alike=True, hands_on=linear is jointly)
    register(rule)
    batch_alike(name)
    ELEMENTWISE.add(name)
    return rule


def _counted(formulas: int, method: Any) -> Any:
    """Wrap a method of a rule to check that the op has as many operands as there are formulas."""

    def counted(op: Op, values: Tangents) -> Sequence[Value | None]:
        if len(op.operands) != formulas:
            raise RuleResultError(
                f"the rule for `{op.name}` in {op.rule.module} has a formula for each of "
                f"{formulas} operands, and the op has {len(op.operands)}",
                where=user_line(op.operation.location),
                do="give elementwise one formula per operand, None where there is no derivative",
            )
        return method(op, values)

    return counted


def _diagonal_vjp(*scale: Any) -> Vjp:
    """Return the vjp of an elementwise op, unrolled for the usual one or two operands."""

    def of_any(op: Op, cts: Tangents) -> Sequence[Value | None]:
        (ct,) = cts
        pairs = zip(scale, op.active, strict=True)
        return [f(op, ct) if active and f is not None else None for f, active in pairs]

    if len(scale) > 2 or None in scale:
        return of_any
    f, g = scale[0], scale[-1]

    def of_one(op: Op, cts: Tangents) -> Sequence[Value | None]:
        return (f(op, cts[0]),)

    def of_two(op: Op, cts: Tangents) -> Sequence[Value | None]:
        (ct,) = cts
        first, second = op.active
        return f(op, ct) if first else None, g(op, ct) if second else None

    return of_one if len(scale) == 1 else of_two


def linear(
    name: str,
    transpose: Vjp,
    *,
    linear: Callable[[Mask], bool] = jointly,
    keeps_type: bool = True,
    reads: tuple[str, ...] | None = None,
    elementwise: bool = False,
    hands_on: bool = False,
) -> Rule:
    """Register an op that is linear in all its inexact operands at once.

    Its jvp is the op itself on tangents.

    `transpose(op, cts)` gives one cotangent per operand; it may skip those not `op.active`.
    """
    module = transpose.__module__
    return register(
        Rule(
            name,
            on_tangents,
            transpose,
            linear,
            module,
            "linear",
            keeps_type,
            hands_on=hands_on,
            reads=reads,
            copies=True,
            elementwise=elementwise,
        )
    )


def on_tangents(op: Op, tangents: Tangents) -> list[Value | None]:
    """Emit the jvp of a linear op: the same op, on tangents."""
    operands = [_tangent_operand(op, i, t) for i, t in enumerate(tangents)]
    return list(build.clone(op.operation, operands).results)


def _tangent_operand(op: Op, index: int, tangent: Value | None) -> Value:
    if tangent is not None:
        return tangent
    v = op.operands[index]
    return build.zeros_like(v) if inexact(v.type) else op.operand(index)


def carried(carry: Carry) -> Jvp:
    """Return the jvp of an op that carries rows: those of one tangent."""

    def jvp(op: Op, tangents: Tangents) -> list[Value | None]:
        found = carry(op, [None if t is None else [t] for t in tangents])
        return [None if row is None else row[0] for row in found]

    jvp.__module__ = carry.__module__
    return jvp


def distributed(flags: Sequence[bool], values: Sequence[Value], width: int) -> list[Row | None]:
    """Return the values in rows of this width at the positions flagged, and None elsewhere."""
    rest = iter(values)
    return [list(itertools.islice(rest, width)) if flag else None for flag in flags]


def product(op: Op, inputs: Sequence[Any], result: Any) -> Callable[[int], Value | None]:
    """Find the Taylor coefficients of an op that is linear in each of two operands."""
    x, y, *_ = inputs

    def term(a: Value | None, b: Value | None) -> Value | None:
        return None if a is None or b is None else build.clone(op.operation, [a, b]).result

    return lambda k: functools.reduce(add, [term(x[j], y[k - j]) for j in range(k + 1)])


def bilinear(name: str, transpose: Vjp, *, reads: tuple[str, ...] | None = None) -> Rule:
    """Register a product: linear in each of two operands; `transpose(op, cts)` as for `linear`."""

    def jvp(op: Op, tangents: Tangents) -> list[Value | None]:
        dx, dy = tangents
        left = None if dx is None else build.clone(op.operation, [dx, op.rhs]).result
        right = None if dy is None else build.clone(op.operation, [op.lhs, dy]).result
        return [add(left, right)]

    module = transpose.__module__
    return register(
        Rule(
            name,
            jvp,
            transpose,
            separately,
            module,
            "bilinear",
            keeps_type=True,
            reads=reads,
            copies=True,
            series=product,
        )
    )


def nondifferentiable(why: str, *names: str, module: str) -> None:
    """Register ops whose derivative is zero wherever it exists: results are never active."""
    for name in names:
        _refuse_second(name, module)
        NONDIFFERENTIABLE[name], _ZERO_IN[name] = why, module


def without_derivative(name: str, module: str) -> Rule:
    """Return the rule for a form of an op that has no active results: see `by_variant`."""

    def nothing(op: Op, values: Tangents) -> list[Value | None]:
        return [None] * len(op.results)

    def inactive(op: Op) -> list[bool]:
        return [False] * len(op.results)

    return Rule(name, nothing, nothing, never, module, "own", activity=inactive)


def rule(name: str, *, linear: Callable[[Mask], bool] = never, **flags: Any) -> Callable[..., Any]:
    """Decorate a class of static methods `jvp`, `vjp` and optional ones: a rule of no family.

    Optional ones are `activity`, `diagonal`, `carry`, `series`, and `reached(op, results)`, which
    says what operands get cotangents where these results have them; without it, all active ones.
    """

    def enter(cls: Any) -> Any:
        if absent := [mode for mode in ("jvp", "vjp") if not callable(getattr(cls, mode, None))]:
            raise TypeError(
                f"the rule for `{name}` needs static methods jvp and vjp: {cls.__name__} has no "
                f"{' and no '.join(absent)}"
            )
        flags.setdefault("family", "own")
        optional = "activity", "reached", "diagonal", "carry", "series"
        more: Any = {of: getattr(cls, of, None) for of in optional}
        register(Rule(name, cls.jvp, cls.vjp, linear, cls.__module__, **more, **flags))
        return cls

    return enter


def by_variant(
    name: str, variant: Callable[[Op], Rule], reads: tuple[str, ...] | None = None
) -> Rule:
    """Register an op whose rule depends on its region or attributes: `variant(op)` picks it.

    `variant` raises MissingRuleError for a form of the op that has no rule. `reads` are attributes
    that all rules look at which say what they read, if any does.
    """

    def jvp(op: Op, tangents: Tangents) -> Sequence[Value | None]:
        return variant(op).jvp(op, tangents)

    def vjp(op: Op, cts: Tangents) -> Sequence[Any]:
        return variant(op).vjp(op, cts)

    module = variant.__module__
    return register(Rule(name, jvp, vjp, never, module, "by variant", variant=variant, reads=reads))


FAMILIES = (
    "elementwise",
    "shape",
    "reduction",
    "products",
    "convolution",
    "tuples_and_barriers",
    "chlo",
    "ragged_dot",
    "calls.func_call",
    "calls.derivative_ops",
    "branches",
    "loops.while_loop",
    "chlo_scan",
    "indexing",
    "windows",
    "linalg",
    "sorting",
    "dynamic",
    "einsum",
    "collectives",
    "custom_calls",
    "manual_computation",
    "normalization",
)


@functools.cache
def load_all() -> None:
    """Import every family once, so that the table is full, and rules of installed packages."""
    for family in FAMILIES:
        importlib.import_module(f"pullback.rules.{family}")
    load_installed()


PLUGINS = "pullback.rules"


def load_installed() -> None:
    """Import the modules that installed packages name as entry points of `pullback.rules`.

    Raises:
      PluginError: one cannot be imported.
      DuplicateRuleError: it has a rule for an op that has one.
    """
    for point in entry_points(group=PLUGINS):
        try:
            point.load()
        except DuplicateRuleError:
            raise
        except Exception as error:
            raise PluginError.of_entry_point(point, "rules", error) from error
