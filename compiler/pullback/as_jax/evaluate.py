"""Evaluate the functions of a module op by op, with the functions of JAX in the table."""

from __future__ import annotations

import contextlib
import functools
from collections import ChainMap
from collections.abc import Mapping, Sequence
from typing import Any

import jax
from jax.ad_checkpoint import checkpoint_policies

from pullback import _jax
from pullback._jax import ir, remat
from pullback.as_jax import table
from pullback.as_jax.custom_calls import is_foreign
from pullback.as_jax.derivative_ops import with_rule_of_module
from pullback.as_jax.one_call import one_call
from pullback.as_jax.source_lines import at
from pullback.as_jax.table import Array, Flat, OpInJax, refusal
from pullback.autodiff.checks import lacks_rule
from pullback.autodiff.zeros import stays_zero
from pullback.errors import MissingRuleError, PullbackError, headline
from pullback.ir import build
from pullback.ir.mlir_passes import run_stock, stock_stage
from pullback.ir.ops import CustomVJPCall
from pullback.ir.regions import TERMINATORS, operands_of, operations, results_of, terminator
from pullback.ir.symbols import functions, is_declaration
from pullback.rules.calls.derivative_ops import forward_map
from pullback.rules.derived import expand_op, has_expansion
from pullback_runtime._jax import operations_named, operations_where

Values = ChainMap[Any, Array]
_NONE: Mapping[Any, Array] = {}


class Evaluation:
    """The functions of a program's module as functions of JAX.

    Attributes:
      checking: True while the program is traced to see whether JAX takes it: what JAX refuses then
        is refused as an op without counterpart.
    """

    def __init__(self, program: Any) -> None:
        self.checking = False
        self._program = program
        self._functions = functions(program.module)
        self._jitted: dict[str, Flat] = {}
        self._forward_maps: dict[tuple[str, str, str], str] = {}

    def check(self, name: str, run: Flat) -> None:
        """Trace what runs a function, so that what JAX does not take is refused now."""
        arguments = self.block(name).arguments
        self.checking = True
        try:
            with _as_wide_as_the_module(self._is_wide):
                jax.eval_shape(run, *(table.aval_of(v.type) for v in arguments))
        finally:
            self.checking = False

    def block(self, name: str) -> Any:
        """Return the body of a function."""
        function = self._functions[name]
        if is_declaration(function):
            raise refusal(function, f"@{name}, which has no body")
        return function.regions[0].blocks[0]

    def forward_map(self, view: CustomVJPCall, backward: str, mask: str, given: str) -> str:
        """Return the function `(residuals…, tangents…) -> (tangents of inexact results…)`.

        It is the transpose of a backward rule for the operands in the mask, in those `given`.
        """
        key = view.decomposition, backward, given
        if key not in self._forward_maps:
            module = self._program.module
            self._forward_maps[key] = forward_map(
                module, self._program.rules, view.op, backward, mask, given
            )
            in_known_ops(module)
            self._functions = functions(module)
        return self._forward_maps[key]

    def stay_zero(self, name: str) -> list[bool]:
        """Return which results of a function are zero for certain, with all their derivatives."""
        results = operands_of(terminator(self.block(name)))
        return [stays_zero(v, self._functions) for v in results]

    def inline(self, name: str) -> Flat:
        """Return a function whose equations stand where it is called."""
        block = self.block(name)

        def run(*args: Array) -> list[Array]:
            with _as_wide_as_the_module(self._is_wide):
                values = self._block(block, args, ChainMap())
                return [values[v] for v in operands_of(terminator(block))]

        run.__name__ = run.__qualname__ = name
        return run

    def jitted(self, name: str) -> Flat:
        """Return a function whose call is one equation, a checkpoint if the module says so."""
        if name not in self._jitted:
            run = self.inline(name)
            if remat.CHECKPOINT in self._functions[name].attributes:
                policy = checkpoint_policies.save_and_offload_only_these_names(
                    names_which_can_be_saved=[remat.SAVED],
                    names_which_can_be_offloaded=[remat.OFFLOADED],
                    offload_src="device",
                    offload_dst="pinned_host",
                )
                self._jitted[name] = jax.checkpoint(run, policy=policy)
            else:
                self._jitted[name] = jax.jit(run)
        return self._jitted[name]

    def one_call(self, operation: Any) -> Flat:
        """Return a function that calls the module for one of its ops."""
        return one_call(self._program, operation)

    @functools.cached_property
    def _is_wide(self) -> bool:
        """True if the module has numbers of 64 bits."""

        def is_wide(operation: Any) -> bool:
            types = [v.type for v in results_of(operation)]
            types += [v.type for region in operation.regions for b in region for v in b.arguments]
            return any("64" in str(build.info(t).element) for t in types)

        return bool(operations_where(self._program.module, is_wide))

    def _block(
        self, block: Any, args: Sequence[Array], outer: Values, known: Mapping[Any, Array] = _NONE
    ) -> Values:
        """Evaluate the ops of a block, but for those whose results are known; return all values."""
        values = outer.new_child({**dict(zip(block.arguments, args, strict=True)), **known})
        for operation in operations(block):
            results = results_of(operation)
            if operation.name in TERMINATORS or (results and results[0] in known):
                continue
            operands = [values[v] for v in operands_of(operation)]
            values.update(zip(results, self._op(operation, operands, values), strict=True))
        return values

    def function_of(self, operation: Any, values: Values | None = None) -> tuple[OpInJax, Flat]:
        """Return an op, and the function of its operands that JAX has in the place of it.

        Args:
          values: of the module around the op, if it uses any.
        """
        lowering = table.OPS.get(operation.name)
        if lowering is None:
            raise refusal(operation)
        for v in results_of(operation):
            if -1 in build.shape(v):
                raise refusal(operation, f"of dynamic shape, {v.type}")
        regions = self._regions(operation, ChainMap() if values is None else values)
        op = OpInJax(operation, self, regions, table._Read(operation))

        def evaluated(*operands: Array) -> list[Array]:
            found = lowering(op, *operands)
            op.check_attributes()
            return found if isinstance(found, list) else [found]  # a tuple is one value

        return op, evaluated

    def _op(self, operation: Any, operands: list[Array], values: Values) -> list[Array]:
        op, run = self.function_of(operation, values)
        if is_foreign(operation) or lacks_rule(operation):
            run = with_rule_of_module(op, operation.name, run)
        try:
            results = at(operation.location, lambda: run(*operands))
        except PullbackError:
            raise
        except Exception as error:
            if not self.checking:
                raise
            raise refusal(operation, f"as it is here: {headline(error)}") from error
        _check_results(operation, results)
        return results

    def _regions(self, operation: Any, values: Values) -> list[Region]:
        """Return each region as a function, which may use the values around it."""
        blocks = [each.blocks[0] for each in operation.regions if len(each.blocks)]
        return [Region(self, block, values) for block in blocks]


class Region:
    """A region of an op that is evaluated, as a function of the arguments of its block."""

    def __init__(self, evaluation: Evaluation, block: Any, values: Values) -> None:
        self._evaluation, self._block, self._values = evaluation, block, values

    def __call__(self, *args: Array) -> list[Array]:
        return self.partly(args, {}, operands_of(terminator(self._block)))

    def outer(self, v: Any) -> Array:
        """Return what a value of the module around the region is."""
        return self._values[v]

    def partly(
        self, args: Sequence[Array], known: Mapping[Any, Array], wanted: Sequence[Any]
    ) -> list[Array]:
        """Return these values of the region, where some others are known beforehand."""
        values = self._evaluation._block(self._block, args, self._values, known)
        return [values[v] for v in wanted]


def _check_results(operation: Any, results: Sequence[Array]) -> None:
    """Raise NoJaxCounterpartError for a result whose type is not that in the module."""
    expected = results_of(operation)
    if len(expected) != len(results):
        raise refusal(operation, f"with {len(expected)} results; JAX gives {len(results)}")
    for v, found in zip(expected, results, strict=True):
        if build.info(v.type).kind == "?":
            continue
        aval = table.aval_of(v.type)
        if (found.shape, found.dtype) != (aval.shape, aval.dtype):
            raise refusal(operation, f"with the result {v.type}; JAX gives {jax.typeof(found)}")


def _as_wide_as_the_module(is_wide: bool) -> contextlib.AbstractContextManager[Any]:
    """Let JAX have types of 64 bits where the module has them, which it narrows otherwise."""
    if is_wide and not jax.config.jax_enable_x64:
        return jax.enable_x64(True)
    return contextlib.nullcontext()


def in_known_ops(module: ir.Module) -> None:
    """Rewrite ops of constant shapes as static ones, and those that JAX lacks, in place."""
    if operations_named(module, *_DYNAMIC):
        run_stock(module, stock_stage("stablehlo-canonicalize-dynamism"))

    def is_unknown(op: Any) -> bool:
        return op.name not in table.OPS and has_expansion(op)

    with _jax.working_in(module):
        for op in operations_where(module, is_unknown):
            try:
                expand_op(op)
            except MissingRuleError as error:
                raise refusal(op, f"as it is here: {error.message}") from error


_DYNAMIC = (
    "stablehlo.dynamic_broadcast_in_dim",
    "stablehlo.dynamic_gather",
    "stablehlo.dynamic_iota",
    "stablehlo.dynamic_pad",
    "stablehlo.dynamic_reshape",
    "stablehlo.real_dynamic_slice",
)
