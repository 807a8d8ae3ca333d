"""Save a function of symbolic dimensions with its rules, and make a program of it for given sizes.

All functions in its module take the sizes of the symbols first. The types of those named by calls
with rules are recorded from JAX. For given sizes these are static types, and StableHLO infers the
others from them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from pullback import _jax
from pullback._jax import dimensions, ir, tracing
from pullback.errors import PipelineError
from pullback.files import vhlo_gaps
from pullback.files.errors import ArtifactError, NotPortableError
from pullback.files.loaded_program import LoadedRules
from pullback.files.symbolic import refine_types
from pullback.frontend import link
from pullback.frontend.closures import lift
from pullback.frontend.keep import without_mutable_arrays
from pullback.frontend.rules.rule_table import RuleTable
from pullback.ir import ops
from pullback.ir.environment import Environment
from pullback.ir.locations import user_line_of
from pullback.ir.modules import clone, take_entry
from pullback.ir.regions import replace_op, terminator
from pullback.ir.signatures import drop_arguments, set_signature
from pullback.ir.symbols import CALL, CALLS, called, callee, functions, make_private, symbol
from pullback.passes.base import NO_RULES
from pullback.passes.entry_edits import ReorderOperands, SelectResults
from pullback.passes.inline_calls import InlineCalls
from pullback.passes.jvp import JVP
from pullback.passes.manager import run_stages
from pullback.passes.options import build_pass
from pullback.passes.pipelines import Stage
from pullback.passes.vjp import VJP
from pullback.program.program import Program
from pullback.program.provenance import ModuleSource, PlatformModule
from pullback.program.record import Interface
from pullback_runtime._jax import operations_named, symbols_in

ENTRY = "main.kept"
METADATA, ORIGIN = "kept", "kept_origin"
"""Metadata keys: the program with its rules; or its origin, and the passes that derive it.

Under another name: who does not know of the passes must not take one for the other."""
STAGES = "stages"
PASSES = {each.name: each for each in (InlineCalls, JVP, VJP, ReorderOperands, SelectResults)}
TIDY = "symbol-dce"
WHY_NOT = "not_kept"
SMALL = 64  # ops of functions to inline: those that compute sizes, such as a quotient, are smaller


@dataclass(frozen=True, eq=False)
class Kept:
    """A module that holds, for each platform, a function of symbolic dimensions with its rules.

    Attributes:
      module: the one with these functions, beside others.
      entries: the function's name, by platform.
      sizes: by function, the symbolic shapes of its arguments and of its results.
      checkpoints: names of the functions to rematerialize (`jax.checkpoint`).
      stages: the passes that derive the program from the function, for given sizes.
    """

    module: ir.Module
    entries: Mapping[str, str]
    sizes: Mapping[str, Sequence[Sequence[str]]]
    checkpoints: Sequence[str]
    stages: tuple[Stage, ...] = ()

    @staticmethod
    def read(module: ir.Module, metadata: Mapping[str, Any]) -> Kept | None:
        """Read the metadata of a file; return None if its module holds no rules."""
        (name,) = {METADATA, ORIGIN} & metadata.keys() or (None,)
        if name is None:
            return None
        try:
            described = metadata[name]
            entries, sizes = dict(described["entries"]), dict(described["sizes"])
            if missing := set(entries.values()) - functions(module).keys():
                raise ValueError(f"no function {missing.pop()}")
            stages = tuple(map(stage, described[STAGES])) if name == ORIGIN else ()
            return Kept(module, entries, sizes, list(described[vhlo_gaps.CHECKPOINTS]), stages)
        except (AttributeError, KeyError, TypeError, ValueError, PipelineError) as error:
            raise ArtifactError(
                f"the file's metadata are damaged: {name}: {error}", do="save the program again"
            ) from error

    def modules(self) -> dict[str, ir.Module]:
        """Return a module for each platform, like those that `of` makes."""
        made = {entry: self._alone(entry) for entry in {*self.entries.values()}}
        for entry, module in made.items():
            _name_entry(module)
            with module.context:
                for name, function in functions(module).items():
                    sides = self.sizes.get(entry if name == ENTRY else name)
                    dimensions.mark_again(function, sides, f"{name} of {entry}")
        return {platform: made[entry] for platform, entry in self.entries.items()}

    def _alone(self, entry: str) -> ir.Module:
        """Copy the module with this entry as `@main`, and restore what a file cannot hold."""
        module = clone(self.module)
        vhlo_gaps.restore(module, erase=False)
        take_entry(module, entry)
        refine_types.take_polymorphism(module)
        names = functions(module)
        vhlo_gaps.put_checkpoints(module, [each for each in self.checkpoints if each in names])
        return module

    def program(self, interface: Interface, values: Mapping[str, int]) -> Program:
        """Return the program for these values of the symbols."""
        modules: dict[str, ir.Module] = {}
        for entry in self.entries.values():
            if entry not in modules:
                modules[entry] = self._fixed(entry, values)
                run_stages(modules[entry], self.stages)
        rules: Any = LoadedRules()
        lowered = [
            PlatformModule(modules[entry], rules, Environment((platform,), only_debugs=False))
            for platform, entry in self.entries.items()
        ]
        return Program(interface, (), lowered[0], lowered[1:], ModuleSource.of(lowered))

    def _fixed(self, entry: str, values: Mapping[str, int]) -> ir.Module:
        module = self._alone(entry)
        table = functions(module)
        shapes = {
            "main" if name == entry else name: [
                [dimensions.shape_of(text, values) for text in side] for side in sides
            ]
            for name, sides in self.sizes.items()
            if name == entry or name in table
        }
        with _jax.working_in(module):
            _give_sizes(table, set(shapes), list(values.values()))
            InlineCalls(max_ops=SMALL).run(module, NO_RULES)
            table = functions(module)
            shapes = {name: sides for name, sides in shapes.items() if name in table}
            _give_types(table, shapes)
            _refine(module, table, shapes)
        refine_types.check(module)
        return module


def of(function: Any, in_avals: Sequence[Any], platforms: Sequence[str]) -> dict[str, ir.Module]:
    """Lower a flat function for each platform to a module with all of its rules.

    The function is `@main.kept` there.

    Raises: what JAX or a rule raises, and PullbackError.
    """
    stages = jax.jit(function).trace(*in_avals)
    if tracing.lifted_tracers(stages):
        raise NotPortableError(
            "a program that closes over values of a trace that still goes on cannot be saved",
            do="pass these values as arguments, or trace the program outside",
        )
    closed = without_mutable_arrays(lift.close(stages.jaxpr))
    return {each: _of_platform(closed, symbols_in(in_avals), each) for each in platforms}


def _of_platform(closed: Any, names: tuple[str, ...], platform: str) -> ir.Module:
    rules = RuleTable((platform,), names)
    module = rules.lower_entry(rules.keeper.keep(closed), "main")
    rules.stage_all(module)
    _refuse_unknown(module)
    _name_entry(module)
    return module


def _refuse_unknown(module: ir.Module) -> None:
    """Raise ArtifactError for a dynamic op that cannot be made static once sizes are known."""
    for op in operations_named(module, "stablehlo.custom_call"):
        name = ir.StringAttr(op.attributes["call_target_name"]).value
        if name.startswith(refine_types.DYNAMIC) and name not in refine_types.FOLLOWING:
            raise ArtifactError(
                f"the sizes of what `{name.removeprefix(refine_types.DYNAMIC)}` gives are not "
                f"inferred from those of the arguments ({user_line_of(op)})",
                do="trace the program for arrays of known shapes, and save that",
            )


def _name_entry(module: ir.Module) -> None:
    symbols = ir.SymbolTable(module.operation)
    symbols.set_symbol_name(symbols["main"], ENTRY)


def stage(text: str) -> Stage:
    """Parse a pass; a file can name only passes that derive programs."""
    name, _, options = text.removesuffix("}").partition("{")
    return TIDY if text == TIDY else build_pass(PASSES[name], options)


def put_into(
    module: ir.Module, kept: Mapping[str, ir.Module], stages: Sequence[Stage]
) -> dict[str, Any]:
    """Merge the functions for each platform into a module; return the metadata for `Kept.read`."""
    entries = {platform: link.merge(module, each, ENTRY) for platform, each in kept.items()}
    table = functions(module)
    for name in entries.values():
        make_private(table[name])
    described = {
        "entries": entries,
        "sizes": dimensions.take(table),
        vhlo_gaps.CHECKPOINTS: vhlo_gaps.take_checkpoints(module),
    }
    return (
        {ORIGIN: described | {STAGES: list(map(str, stages))}} if stages else {METADATA: described}
    )


def _give_sizes(table: Mapping[str, Any], known: set[str], values: Sequence[int]) -> None:
    """Replace the arguments that stand for the sizes of symbols with constants."""
    taking = _taking_sizes(table, known, len(values))
    for name in taking:
        block = table[name].regions[0].blocks[0]
        with ir.InsertionPoint.at_block_begin(block):
            arguments = list(block.arguments)[: len(values)]
            for argument, value in zip(arguments, values, strict=True):
                argument.replace_all_uses_with(_scalar(value, argument.type))
        drop_arguments(table[name], arguments)
    for function in table.values():
        for name in CALLS:
            for call in operations_named(function, name):
                if called(call) in taking:
                    _without_leading(call, len(values))


def _taking_sizes(table: Mapping[str, Any], known: set[str], count: int) -> set[str]:
    """Return the functions that take the sizes.

    These are the known ones, and those to which all callers forward the sizes that they take.
    """
    calls: dict[str, list[tuple[str, bool]]] = {}
    for name, function in table.items():
        given = list(function.regions[0].blocks[0].arguments)[:count]
        for call in operations_named(function, CALL):
            hands_on = list(call.operands)[:count] == given and len(given) == count
            calls.setdefault(callee(call), []).append((name, hands_on))
    taking = known | calls.keys()
    while others := {
        name
        for name in taking - known
        if not all(hands_on and caller in taking for caller, hands_on in calls[name])
    }:
        taking -= others
    return taking


def _scalar(value: int, kind: Any) -> ir.Value:
    element = np.dtype(f"int{ir.IntegerType(ir.RankedTensorType(kind).element_type).width}")
    return _jax.stablehlo.constant(ir.DenseElementsAttr.get(np.asarray(value, element)))


def _without_leading(call: ir.Operation, count: int) -> None:
    new = ir.Operation.create(
        call.name,
        results=[result.type for result in call.results],
        operands=list(call.operands)[count:],
        attributes=dict(call.attributes.items()),
        loc=call.location,
        ip=ir.InsertionPoint(call),
    )
    replace_op(call, new.results)


def _give_types(table: Mapping[str, Any], shapes: Mapping[str, Any]) -> None:
    """Set the types of functions' arguments and results, and of the results of calls with rules."""
    for name, (inputs, outputs) in shapes.items():
        block = table[name].regions[0].blocks[0]
        _set_types(block.arguments, inputs)
        given = zip(terminator(block).operands, outputs, strict=True)
        set_signature(
            table[name], results=[refine_types.of_shape(v.type, shape) for v, shape in given]
        )
    for function in table.values():
        for call in operations_named(function, ops.COMPOSITE):
            if (name := called(call) or "") in shapes:
                _set_types(call.results, shapes[name][1])


def _set_types(values: Any, shapes: Sequence[tuple[int, ...]]) -> None:
    for value, shape in zip(values, shapes, strict=True):
        value.set_type(refine_types.of_shape(value.type, shape))


def _refine(module: ir.Module, table: Mapping[str, Any], shapes: Iterable[str]) -> None:
    """Infer all other types, with a temporary `@main` that calls every function of known types."""
    _name_entry(module)
    roots = [table[name] for name in shapes]
    for function in roots:
        make_private(function)
    inputs = [kind for each in roots for kind in each.regions[0].blocks[0].arguments.types]
    with ir.InsertionPoint.at_block_begin(module.body):
        caller = _jax.func.FuncOp("main", ir.FunctionType.get(inputs, []))
        block = caller.add_entry_block()
        given = iter(block.arguments)
        with ir.InsertionPoint(block):
            for function in roots:
                kind = function.opview.type
                operands = [next(given) for _ in kind.inputs]
                name = ir.FlatSymbolRefAttr.get(symbol(function))
                _jax.func.CallOp(kind.results, name, operands)
            _jax.func.ReturnOp([])
    refine_types.refine(module)
    take_entry(module, ENTRY)
    for function in functions(module).values():
        set_signature(function)
