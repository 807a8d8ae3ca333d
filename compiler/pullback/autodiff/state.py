"""The state of one run of a differentiating pass: symbols, derived functions, activity."""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from pullback import _jax
from pullback._jax import ir
from pullback.autodiff import registry
from pullback.autodiff.activity import analyze, numbered
from pullback.errors import MissingRuleError, NotDifferentiableError
from pullback.ir import build
from pullback.ir.build import Value
from pullback.ir.inline import emit_call, inline
from pullback.ir.locations import user_line
from pullback.ir.masks import Asked, masked
from pullback.ir.purity import differs_again, is_used, target_of
from pullback.ir.regions import terminator
from pullback.ir.signatures import function_type
from pullback.ir.symbols import Symbols, called, make_private, make_public, search
from pullback_runtime._jax import operations_named
from pullback_runtime.ir._erasure import erase

_BARRIER, _STAND_IN = "stablehlo.optimization_barrier", "pullback.stand_in"


class Differentiation:
    """The state of one differentiating pass over one module."""

    def __init__(self, module: Any, rules: Any) -> None:
        registry.load_all()
        self.module = module
        self.rules = rules
        self.symbols = Symbols(module)
        self.functions = self.symbols.functions
        self._known: dict[Any, dict[tuple[Any, ...], Any]] = defaultdict(dict)  # by function
        self.making: set[tuple[Any, ...]] = set()
        self.in_place: str | None = None  # a function that is being rewritten
        self.bodies: dict[str, Any] = {}  # of functions that are called here, by inlining.call
        self._analyzed: dict[Any, Any] | None = None
        self.has_stand_ins = False
        self.through = "rules"  # or the names of functions whose code is differentiated instead
        self.stores_all = False  # what reverse mode needs, and no minimum cut of it
        self.has_checkpoints = False  # whether a loop was reversed by checkpoints
        self.has_two_rules = False  # a call was reversed that has a rule for forward mode as well
        self._outer_loc, build.here.loc = build.here.loc, ir.Location.unknown(_jax.context())

    # ---------------------------------------------------------------------------- functions

    def function(self, name: str) -> Any:
        """Return the func.func operation of that name."""
        try:
            return self.functions[name]
        except KeyError:
            known = ", ".join(f"entry={each}" for each in self.functions)
            raise NotDifferentiableError(
                f"no function `@{name}` in the module",
                do=f"name one of: {known}" if known else "put StableHLO in func.func: it has none",
            ) from None

    def block(self, name: str) -> Any:
        """Return the body of a function, which is one block."""
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

    def add_function(
        self, name: str, arguments: Sequence[Any], results: Sequence[Any], loc: Any
    ) -> tuple[str, Any]:
        """Add a private function with an empty entry block; return its name and the block."""
        name = self.symbols.unique(name)
        operation = ir.Operation.create(
            "func.func",
            attributes={
                "sym_name": build.string(name),
                "sym_visibility": build.string("private"),
                "function_type": function_type(arguments, results, _jax.context()),
            },
            regions=1,
            loc=loc,
            ip=ir.InsertionPoint(self.module.body),
        )
        self.symbols.add(name, operation)
        block = operation.regions[0].blocks.append(*arguments, arg_locs=[loc] * len(arguments))
        return name, block

    def clone_function(self, name: str, new_name: str) -> str:
        """Add a private copy of a function under a new name; return that name."""
        self.block(name)
        if name == self.in_place:
            raise self._recursion(name)
        new_name = self.symbols.unique(new_name)
        copy = self.function(name).clone(ir.InsertionPoint(self.module.body)).operation
        make_private(copy, new_name)
        self.symbols.add(new_name, copy)
        return new_name

    def changed(
        self,
        name: str,
        suffix: str,
        concerns: Callable[[Any], bool],
        change: Callable[[Any], None],
    ) -> str:
        """Return the name of a changed copy of a function, made once; its own if nothing changes.

        Args:
          concerns, change: take the function's block.
        """

        def derive() -> str:
            if not concerns(self.block(name)):
                return name
            copy = self.clone_function(name, f"{name}.{suffix}")
            change(self.block(copy))
            return copy

        return str(self.cached((suffix, name), derive))

    def drop_function(self, name: str) -> None:
        """Erase a function without callers, and forget what was derived of it."""
        self._forget(name)
        erase(self.symbols.remove(name))

    def _forget(self, name: str) -> None:
        """Forget what is memoized for a name: another function may have it next."""
        self.bodies.pop(name, None)
        self._known.pop(name, None)

    def rename(self, name: str, new_name: str) -> None:
        """Give a function without callers a new name, which must be free."""
        self._forget(name)
        function = self.symbols.remove(name)
        function.attributes["sym_name"] = build.string(new_name)
        self.symbols.add(new_name, function)

    def expose(self, name: str, new_name: str) -> str:
        """Make a function without callers an entry; return its name, numbered if it is taken."""
        if name != new_name:
            new_name = self.symbols.unique(new_name)
            self.rename(name, new_name)
        make_public(self.function(new_name))
        return new_name

    def hide(self, name: str) -> None:
        """Make a function private."""
        make_private(self.function(name))

    def take_place(self, name: str, entry: str) -> None:
        """Replace the entry by @name, which gets its name and visibility."""
        visibility = self.function(entry).attributes.get("sym_visibility", build.string("public"))
        self.drop_function(entry)
        self.rename(name, entry)
        self.function(entry).attributes["sym_visibility"] = visibility

    def cached(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        """Return the memoized result of `make` for this key, which starts with (kind, function)."""
        known = self._known[key[1]]
        if key not in known:
            if key in self.making:
                raise self._recursion(key[1])
            self.making.add(key)
            try:
                known[key] = make()
            finally:
                self.making.discard(key)
        return known[key]

    def _recursion(self, name: str) -> NotDifferentiableError:
        return NotDifferentiableError(
            f"`@{name}` calls itself, which XLA does not run either",
            where=user_line(self.functions[name].location) if name in self.functions else None,
            do="write the recursion as a loop: stablehlo.while",
        )

    def stage(self, key: str, kind: str, asked: Asked) -> Any:
        """Return the function(s) of a rule that is not staged yet; queries the rule table once."""
        return self.cached(
            ("rule", key, kind, asked), lambda: self.rules.stage(self.symbols, key, kind, asked)
        )

    def __enter__(self) -> Differentiation:
        self._collecting = gc.isenabled()
        gc.disable()  # a pass makes many small objects and no cycles, next to JAX's large heap
        return self

    def __exit__(self, *failure: object) -> None:
        if self._collecting:
            gc.enable()
        self._known.clear()
        self.bodies.clear()
        build.here.loc = self._outer_loc

    # ------------------------------------------------------------------- results left out

    def stand_in(self, result: Value) -> Value:
        """Return marked zeros that stand for a linear result which a call no longer gives.

        They are results of a barrier, so a backward function does not rematerialize them.
        """
        self.has_stand_ins = True
        zeros = build.zeros(result.type)
        marks = {_STAND_IN: ir.UnitAttr.get(_jax.context())}
        return build.emit(_BARRIER, [result.type], [zeros], marks).result

    def stand_ins(self, block: Any) -> list[Value]:
        """Return the stand-ins in the block, also inside of loops and branches."""
        function = block.owner.operation
        barriers = operations_named(function, _BARRIER) if self.has_stand_ins else ()
        return [op.result for op in barriers if _STAND_IN in op.attributes]

    # ------------------------------------------------------------------------------- search

    def found_in(
        self,
        operation: Any,
        wanted: Callable[[Any], Any],
        through: Callable[[Any], Any] = called,
    ) -> Any | None:
        """Return an op for which `wanted` holds, at or below an op or in what it calls, or None.

        Only calls for which `through` holds are followed.
        """

        def of_function(name: str) -> Any:
            return self.cached(
                ("found in", name, wanted, through),
                lambda: self.found_in(self.function(name), wanted, through),
            )

        found, names = search(operation, wanted, through)
        below = (each for name in names if (each := of_function(name)) is not None)
        return next(below, None) if found is None else found

    def check_runs_again(self, operation: Any, what: str, who: str = "reverse mode") -> None:
        """Raise MissingRuleError if `who` would recompute other values in what it reruns."""
        found = self.found_in(operation, differs_again, _is_called_for_a_value)
        if found is not None:
            raise MissingRuleError(
                f"no derivative of {what} with `{target_of(found) or found.name}` in it: {who} "
                "runs it again, and that gives another result",
                where=user_line(found.location),
                do="take this step out of there; of callbacks, use pure ones or those without "
                "results; draw random numbers by a key, as in jax.random",
            )

    # ----------------------------------------------------------------------------- activity

    def function_activity(self, name: str, mask: str, frame: Any) -> list[bool]:
        """Return which results of a function are active, given its active arguments.

        In a linear frame, those that depend on them at all, whatever rules say of tangents.
        """

        def compute() -> list[bool]:
            block = self.block(name)
            active = numbered(masked(block.arguments, mask))
            analyze(block, active, frame)
            return [v in active for v in terminator(block).operands]

        return self.cached(("activity", name, mask, frame.linear), compute)

    def while_analyzing(self, key: Any, find: Callable[[], Any]) -> Any:
        """Return the result of `find`, memoized by key until the outermost such call ends.

        No op may change until then.
        """
        outermost = self._analyzed is None
        known = self._analyzed = {} if self._analyzed is None else self._analyzed
        try:
            if key not in known:
                known[key] = find()
            return known[key]
        finally:
            if outermost:
                self._analyzed = None


def _is_called_for_a_value(operation: Any) -> bool:
    return called(operation) is not None and any(map(is_used, operation.results))


INLINE_LIMIT = 24  # ops; a call and its signature cost as much as a few of them


def call(diff: Differentiation, name: str, operands: Sequence[Value]) -> list[Value]:
    """Apply @name to `operands` and return its results: inlined if it is small, else by a call."""
    known = diff.bodies.get(name)
    if known is None:
        large = len(diff.block(name).operations) > INLINE_LIMIT
        function = diff.function(name).operation
        known = diff.bodies[name] = emit_call if large else inline, function
    emit, function = known
    return emit(function, operands)
