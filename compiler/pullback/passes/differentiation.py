"""What one run of a differentiating pass shares: symbols, derived functions, activity.

A *mask* is a string with one character per position, '1' where a tangent or cotangent is present.
Masks of functions here range over all positions; masks of custom rules over inexact ones only.
"""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

from pullback import _jax
from pullback._errors import MissingRuleError, NotDifferentiableError, RuleResultError
from pullback._jax import ir
from pullback.dialect import build
from pullback.dialect.build import Value, hides_inexact, inexact
from pullback.frontend.locations import user_line
from pullback.rules import registry
from pullback.rules.registry import NONDIFFERENTIABLE, RULES, Op, Rule


def mask_of(flags: Sequence[bool]) -> str:
    return "".join("1" if f else "0" for f in flags)


_BARRIER, _STAND_IN = "stablehlo.optimization_barrier", "pullback.stand_in"


class Differentiation:
    """The state of one differentiating pass over one module."""

    def __init__(self, module: Any, rules: Any) -> None:
        registry.load_all()
        self.module = module
        self.rules = rules
        self.functions: dict[str, Any] = {}
        self.cache: dict[tuple[Any, ...], Any] = {}
        self.making: set[tuple[Any, ...]] = set()
        self.in_place: str | None = None  # a function that is being rewritten
        self.bodies: dict[str, Any] = {}  # of functions that are called here, by inlining.call
        self.detached: list[Any] = []
        self.has_stand_ins = False
        self.has_checkpoints = False  # whether a loop was reversed by checkpoints
        self.refresh()
        build.here.loc = ir.Location.unknown(_jax.context())
        self.nothing = ir.Operation.create(
            "builtin.unrealized_conversion_cast", [build.scalar("i1")], loc=build.here.loc
        )

    # ---------------------------------------------------------------------------- functions

    def refresh(self) -> None:
        """Read the symbols anew, after somebody else added functions."""
        for op in self.module.body.operations:
            operation = op.operation
            if operation.name == "func.func":
                name = ir.StringAttr(operation.attributes["sym_name"]).value
                self.functions.setdefault(name, operation)

    def function(self, name: str) -> Any:
        """The func.func operation of that name."""
        if name not in self.functions:
            self.refresh()
        try:
            return self.functions[name]
        except KeyError:
            known = ", ".join("@" + n for n in self.functions)
            raise NotDifferentiableError(
                f"no function `@{name}` in the module",
                do=f"name one of: {known}" if known else "put StableHLO in func.func: it has none",
            ) from None

    def block(self, name: str) -> Any:
        """The body of a function, which is one block."""
        function = self.function(name)
        blocks = function.regions[0].blocks
        if len(blocks) != 1:
            raise NotDifferentiableError(
                f"`@{name}` has {f'{len(blocks)} blocks' if len(blocks) else 'no body'}",
                where=user_line(function.location),
                do="write control flow as stablehlo.if, case and while"
                if len(blocks)
                else "add its definition to the module",
            )
        return blocks[0]

    def unique(self, name: str) -> str:
        """`name`, with a number behind it if it is taken."""
        if name not in self.functions:
            return name
        count = 0
        while f"{name}_{count}" in self.functions:
            count += 1
        return f"{name}_{count}"

    def add_function(
        self, name: str, arguments: Sequence[Any], results: Sequence[Any], loc: Any
    ) -> tuple[str, Any]:
        """A new private function with an empty entry block; returns its name and the block."""
        name = self.unique(name)
        operation = ir.Operation.create(
            "func.func",
            attributes={
                "sym_name": build.string(name),
                "sym_visibility": build.string("private"),
                "function_type": function_type(arguments, results),
            },
            regions=1,
            loc=loc,
            ip=ir.InsertionPoint(self.module.body),
        )
        self.functions[name] = operation
        block = operation.regions[0].blocks.append(*arguments, arg_locs=[loc] * len(arguments))
        return name, block

    def clone_function(self, name: str, new_name: str) -> str:
        """A private copy of a function under a new name."""
        self.block(name)
        if name == self.in_place:
            raise self._recursion(name)
        new_name = self.unique(new_name)
        copy = self.function(name).clone(ir.InsertionPoint(self.module.body))
        copy.attributes["sym_name"] = build.string(new_name)
        copy.attributes["sym_visibility"] = build.string("private")
        self.functions[new_name] = copy
        return new_name

    def detach(self, operation: Any) -> None:
        """Take a replaced op out of its block; its results stay valid keys until the end.

        It stops using its operands: they may go before it does, and would leave it with pointers to
        nothing.
        """
        operation.detach_from_parent()
        for i in range(len(operation.operands)):
            operation.operands[i] = self.nothing.result
        self.detached.append(operation)

    def drop_function(self, name: str) -> None:
        self.bodies.pop(name, None)
        self.functions.pop(name).erase()

    def rename(self, name: str, new_name: str) -> None:
        """Give a function that nobody calls a new name, which must be free."""
        self.bodies.pop(name, None)
        function = self.functions.pop(name)
        function.attributes["sym_name"] = build.string(new_name)
        self.functions[new_name] = function

    def expose(self, name: str, new_name: str) -> str:
        """Let a function that nobody calls be an entry; its name, a number behind it if taken."""
        if name != new_name:
            new_name = self.unique(new_name)
            self.rename(name, new_name)
        self.function(new_name).attributes["sym_visibility"] = build.string("public")
        return new_name

    def hide(self, name: str) -> None:
        """Let a function be one that only others in the module call."""
        self.function(name).attributes["sym_visibility"] = build.string("private")

    def take_place(self, name: str, entry: str) -> None:
        """Let @name become the entry, with its visibility, in the place of what was there."""
        visibility = self.function(entry).attributes.get("sym_visibility", build.string("public"))
        self.drop_function(entry)
        self.rename(name, entry)
        self.function(entry).attributes["sym_visibility"] = visibility

    def cached(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        """What is made once per kind of thing and function, `key[:2]`, and the rest of the key."""
        if key not in self.cache:
            if key in self.making:
                raise self._recursion(key[1])
            self.making.add(key)
            try:
                self.cache[key] = make()
            finally:
                self.making.discard(key)
        return self.cache[key]

    def _recursion(self, name: str) -> NotDifferentiableError:
        return NotDifferentiableError(
            f"`@{name}` calls itself, which XLA does not run either",
            where=user_line(self.functions[name].location) if name in self.functions else None,
            do="write the recursion as a loop: stablehlo.while",
        )

    def stage(self, key: str, kind: str, mask: str) -> Any:
        """The function(s) of a rule that is not in the module yet; asked for once."""
        return self.cached(
            ("rule", key, kind, mask), lambda: self.rules.stage(self.module, key, kind, mask)
        )

    def __enter__(self) -> Differentiation:
        self._collecting = gc.isenabled()
        gc.disable()  # a pass makes many small objects and no cycles, next to JAX's large heap
        return self

    def __exit__(self, *failure: object) -> None:
        """Erase replaced ops now: one that outlived the module would corrupt memory."""
        if self._collecting:
            gc.enable()
        self.cache.clear()
        self.bodies.clear()
        for operation in reversed(self.detached):
            operation.erase()
        self.detached.clear()

    # ------------------------------------------------------------------- results left out

    def stand_in(self, result: Value) -> Value:
        """Zeros for a linear result that a call no longer gives, told from other zeros.

        Behind a barrier: a backward function does not make them again, but asks for them.
        """
        self.has_stand_ins = True
        zeros = build.zeros(result.type)
        marks = {_STAND_IN: ir.UnitAttr.get(_jax.context())}
        return build.emit(_BARRIER, [result.type], [zeros], marks).result

    def stand_ins(self, block: Any) -> list[Value]:
        """Those in the block, also inside of loops and branches."""
        found: list[Value] = []

        def visit(operation: Any) -> Any:
            if operation.name == _BARRIER and _STAND_IN in operation.attributes:
                found.append(operation.result)
            return ir.WalkResult.ADVANCE

        if self.has_stand_ins:
            block.owner.operation.walk(visit)
        return found

    # ----------------------------------------------------------------------------- activity

    def function_activity(self, name: str, mask: str, frame: Any) -> list[bool]:
        """Which results of a function are active, given its active arguments.

        In a linear frame, those that depend on them at all, whatever rules say of tangents.
        """

        def compute() -> list[bool]:
            block = self.block(name)
            active = {a for a, m in zip(block.arguments, mask, strict=True) if m == "1"}
            analyze(block, active, self, frame)
            return [v in active for v in terminator(block).operands]

        return self.cached(("activity", name, mask, frame.linear), compute)


def wrt_mask(diff: Differentiation, entry: str, wrt: Sequence[int] | None) -> str:
    """The mask of the arguments at positions `wrt`; of all inexact ones if None."""
    return _position_mask(diff, entry, diff.block(entry).arguments.types, wrt, "argument")


def ct_mask_of(diff: Differentiation, entry: str, outs: Sequence[int] | None) -> str:
    """The mask of the results at positions `outs`; of all inexact ones if None."""
    types = [v.type for v in terminator(diff.block(entry)).operands]
    return _position_mask(diff, entry, types, outs, "result")


def _position_mask(
    diff: Differentiation,
    entry: str,
    types: Sequence[Any],
    positions: Sequence[int] | None,
    what: str,
) -> str:
    def refusal(message: str, do: str) -> NotDifferentiableError:
        where = user_line(diff.function(entry).location)
        return NotDifferentiableError(message, where=where, do=do)

    if positions is None:
        flags = [inexact(t) for t in types]
        for i, type in enumerate(types):
            if not flags[i] and hides_inexact(type):
                raise refusal(
                    f"{what} of `@{entry}` at position {i} has type {type}, "
                    "in which no derivative has a place",
                    "use one argument or result of tensor type for each array in it",
                )
        return mask_of(flags)
    if len(set(positions)) < len(positions):
        raise refusal(
            f"{what} of `@{entry}` named twice: {','.join(map(str, positions))}",
            "name each position once",
        )
    if list(positions) != sorted(positions):
        raise refusal(
            f"{what}s of `@{entry}` out of order: {','.join(map(str, positions))}",
            f"name them in ascending order: derivatives come in the order of the {what}s",
        )
    for i in positions:
        if not 0 <= i < len(types):
            raise refusal(
                f"no {what} of `@{entry}` at position {i}: there are {len(types)}",
                f"name positions from 0 to {len(types) - 1}",
            )
        if not inexact(types[i]):
            raise refusal(
                f"{what} of `@{entry}` at position {i} has type {types[i]}, "
                "which has no derivative",
                "name positions of float or complex type only",
            )
    return mask_of([i in positions for i in range(len(types))])


def function_type(arguments: Sequence[Any], results: Sequence[Any]) -> Any:
    return ir.TypeAttr.get(
        ir.FunctionType.get(list(arguments), list(results), context=_jax.context())
    )


def set_signature(
    function: Any, arguments: Sequence[Any] | None = None, results: Sequence[Any] | None = None
) -> None:
    """Make a function's type agree with its entry block and its return, of which one may know."""
    block = function.regions[0].blocks[0]
    arguments = block.arguments.types if arguments is None else arguments
    results = [v.type for v in terminator(block).operands] if results is None else results
    function.attributes["function_type"] = function_type(arguments, results)
    for name, count in (("arg_attrs", len(arguments)), ("res_attrs", len(results))):
        if name in function.attributes:
            attrs = list(ir.ArrayAttr(function.attributes[name]))[:count]
            empty = ir.DictAttr.get({}, context=_jax.context())
            attrs += [empty] * (count - len(attrs))
            function.attributes[name] = ir.ArrayAttr.get(attrs, context=_jax.context())


ALIAS = "tf.aliasing_output"


def lose_arguments(function: Any, mask: str) -> None:
    """Let the attributes of a function's arguments follow them: those in the mask go.

    Results are other ones then, so theirs go too, and what names one of them.
    """
    context, attributes = _jax.context(), function.attributes
    if "res_attrs" in attributes:
        del attributes["res_attrs"]
    if "arg_attrs" in attributes:
        rest = zip(ir.ArrayAttr(attributes["arg_attrs"]), mask, strict=False)
        named = [ir.DictAttr(of_one) for of_one, m in rest if m != "1"]
        kept = [{n.name: n.attr for n in of_one if n.name != ALIAS} for of_one in named]
        found = [ir.DictAttr.get(of_one, context=context) for of_one in kept]
        attributes["arg_attrs"] = ir.ArrayAttr.get(found, context=context)


def operations(block: Any) -> list[Any]:
    """The operations of a block, without what is inside of them."""
    owner = block.owner.operation
    if owner.name != "func.func" or len(owner.regions[0].blocks) != 1:
        return [view.operation for view in block.operations]
    found: list[Any] = []
    append, go_on = found.append, itertools.chain([ir.WalkResult.ADVANCE], _SKIPPING).__next__

    def visit(operation: Any) -> Any:
        append(operation)
        return go_on()

    owner.walk(visit, ir.WalkOrder.PRE_ORDER)  # in less time than the block's own iterator
    return found[1:]


_SKIPPING = itertools.repeat(ir.WalkResult.SKIP)


def terminator(block: Any) -> Any:
    return ir.InsertionPoint.at_block_terminator(block).ref_operation


def blocks(operation: Any) -> list[Any]:
    """The block of each region; control flow has one in each."""
    return [region.blocks[0] for region in operation.regions]


def replace_terminator(block: Any, values: Sequence[Value]) -> None:
    """Return `values` instead."""
    old = terminator(block)
    ir.Operation.create(
        old.name, operands=list(values), loc=old.location, ip=ir.InsertionPoint(old)
    )
    old.erase()


def latest(v: Value, replaced: Mapping[Value, Value]) -> Value:
    """What stands for a value now, given what was put in the place of which."""
    while v in replaced:
        v = replaced[v]
    return v


# ------------------------------------------------------------------------------ captures


def captures(operation: Any) -> list[Value]:
    """Values defined outside of an op that its regions use, each once, in order."""
    return captured_by([block for region in operation.regions for block in region.blocks])


def captured_by(blocks: Sequence[Any]) -> list[Value]:
    """Values defined outside of blocks that they use, each once, in order."""
    inside: set[Any] = set()
    found: dict[Value, None] = {}
    for block in blocks:
        _collect_captures(block, inside, found)
    return list(found)


def _collect_captures(block: Any, inside: set[Any], found: dict[Value, None]) -> None:
    inside.update(block.arguments)
    for view in block.operations:
        operation = view.operation
        for v in operation.operands:
            if v not in inside:
                found[v] = None
        for region in operation.regions:
            for nested in region.blocks:
                _collect_captures(nested, inside, found)
        inside.update(operation.results)


# ------------------------------------------------------------------------------ analysis


def analyze(block: Any, active: set[Value], diff: Differentiation, frame: Any) -> list[Op]:
    """Records of the ops of a block that carry derivatives; `active` grows by their results.

    An op with an active operand and no rule is an error: nothing is assumed inactive.
    """
    records, record, find = [], frame.record, RULES.get
    for operation in operations(block):
        rule = find(operation.name)
        if rule is None:
            _check_known(operation, operation.name, active)
            continue
        values = operation.operands
        count = 0 if rule.regions else len(values)
        if count == 2:  # the binding's iterator takes twice as long
            x, y = values[0], values[1]
            operands, flags = [x, y], [x in active, y in active]
        elif count == 1:
            x = values[0]
            operands, flags = [x], [x in active]
        else:
            operands = [*values, *captures(operation)] if rule.regions else list(values)
            flags = [v in active for v in operands]
        if True not in flags:
            check_body(operation, rule, active)
            continue
        try:
            results = [operation.result]  # faster than asking for a list of one
        except ValueError:
            results = list(operation.results)
        op = record(operation, operands, results, flags, rule, frame)
        records.append(op)
        if rule.plain:
            active.update(results)
            continue
        if rule.variant is not None:
            op.rule = rule.variant(op)
        active.update(_active_results(op))
    return records


def _active_results(op: Op) -> list[Value]:
    if op.rule.activity is not None:
        flags = op.rule.activity(op)
        return [r for r, active in zip(op.results, flags, strict=True) if active]
    if op.rule.keeps_type:
        return op.results
    return [r for r in op.results if inexact(r.type)]


_TERMINATORS = frozenset({"func.return", "stablehlo.return", "sdy.return"})


def _check_known(operation: Any, name: str, active: Container[Value]) -> None:
    """Raise MissingRuleError if an active value flows into an op that has no rule."""
    if name in NONDIFFERENTIABLE or name in _TERMINATORS:
        return
    everything = [*operation.operands, *captures(operation)]
    if any(v in active for v in everything):
        raise missing_rule(operation, name)


FROM_OUTSIDE = " on a value from outside of its body"


def check_body(operation: Any, rule: Rule, active: Container[Value]) -> None:
    """Raise MissingRuleError if a body uses an active value, which no operand of the op tells."""
    if rule.regions or not len(operation.regions):
        return
    if any(v in active for v in captures(operation)):
        raise missing_rule(operation, rule.name, FROM_OUTSIDE)


def missing_rule(operation: Any, name: str, why: str = "") -> MissingRuleError:
    return MissingRuleError(
        f"no derivative rule for `{name}`{why}",
        where=user_line(operation.location),
        do="wrap this step in jax.custom_jvp or jax.custom_vjp, "
        "or register a rule: docs/extending.md#rules",
    )


def check_count(op: Op, found: Any, expected: int, what: str) -> None:
    if not isinstance(found, list | tuple):
        raise RuleResultError(
            f"the rule for `{op.name}` in {op.rule.module} returned no list of {what}s, but "
            f"{type(found).__name__}",
            where=user_line(op.operation.location),
            do=f"return a list, with one {what} per position, None where it is zero",
        )
    if len(found) != expected:
        raise RuleResultError(
            f"the rule for `{op.name}` in {op.rule.module} returned {len(found)} {what}s "
            f"instead of {expected}",
            where=user_line(op.operation.location),
            do="return one entry per position, None where it is zero",
        )


def check_type(op: Op, found: Any, expected: Any, what: str) -> None:
    if not isinstance(found, ir.Value):
        raise RuleResultError(
            f"the rule for `{op.name}` in {op.rule.module} returned {found!r} for a {what}",
            where=user_line(op.operation.location),
            do="return values of the IR, which pullback.dialect.build makes; None for zero",
        )
    if found.type != expected:
        raise RuleResultError(
            f"the rule for `{op.name}` in {op.rule.module} returned a {what} of the wrong type\n"
            f"  expected: {expected}\n  found:    {found.type}",
            where=user_line(op.operation.location),
            do="give each tangent and cotangent the type of its primal value",
        )
