"""Save and load programs with symbolic dimensions: function, rules, first derivatives."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax

from pullback import _jax
from pullback._jax import dimensions, ir, tracing
from pullback._jax.tangent_types import is_inexact
from pullback.autodiff.reachable_calls import have_rules, met_in
from pullback.errors import MissingRuleError, PipelineError, PullbackError, headline
from pullback.files import container, embedded_constants, loaded_program, vhlo_gaps
from pullback.files.errors import ArtifactError, as_ours
from pullback.files.jax_export.exchange import Exports
from pullback.files.platform_variants import alone
from pullback.files.symbolic import with_rules as keeping
from pullback.frontend import link
from pullback.ir import locations
from pullback.ir.symbols import make_private
from pullback.passes.entry_edits import SelectResults
from pullback.passes.jvp import JVP as ForwardMode
from pullback.passes.pipelines import Stage
from pullback.passes.vjp import VJP as ReverseMode
from pullback.program import symbolic_in_jax
from pullback.program.record import Interface
from pullback.program.symbolic import StoredForms, SymbolicProgram
from pullback.program.symbolic_in_jax import Flat
from pullback_runtime.call import _meshes
from pullback_runtime.files import _symbolic, _variants
from pullback_runtime.ir import _module

if TYPE_CHECKING:
    from pullback.program.program import Program

MAIN, JVP, VJP = "main", "main.jvp", "main.vjp"
"""Names of the functions of a file that JAX has exported."""

EXPORTS, EXPORTED = "exports", "main.exported"
"""Metadata key of the JAX export that a program was made from, and name of its functions."""


def pieces(program: SymbolicProgram, target: str | None = None) -> list[Any]:
    """Return the content of a program's file, as a list of buffers.

    Raises: ArtifactError and its subclasses, as for other programs.
    """
    exported = {MAIN: _exported(program, MAIN)}
    kept, why_not = _kept(program)
    exports = (program.origin or program).stored.exports
    for kind in () if program.order == 0 else (JVP, VJP):
        try:
            exported[kind] = _exported(program, kind)
        except MissingRuleError as error:
            has_all = exports or (kept and all(have_rules(met_in(each)) for each in kept.values()))
            if not has_all or (error.__cause__ and locations.is_raised_by_user(error.__cause__)):
                raise
    modules = {kind: _module_of(each) for kind, each in exported.items()}
    module = modules.pop(MAIN)
    names = {kind: _linked(module, kind, each) for kind, each in modules.items()}
    description: dict[str, Any] = {}
    if kept:
        description |= keeping.put_into(module, kept, _stages(program))
        vhlo_gaps.wrap_chlo(module, expand=False)
        vhlo_gaps.drop_sharding_hints(module)
    elif exports:
        description[EXPORTS] = _exports_into(module, exports, _stages(program))
    elif why_not:
        description[keeping.WHY_NOT] = why_not
    container.refuse_callbacks(module)
    _refuse_several_devices(module)
    with as_ours():
        description |= {
            **container.versions(),
            "platforms": list(program.platforms),
            **container.described_trees(program),
            "arguments": list(program.arg_paths),
            _symbolic.METADATA: {
                kind: {**_symbolic.describe(each), "entry": names.get(kind, MAIN)}
                for kind, each in exported.items()
            },
        }
        embedding = embedded_constants.Embedding.of({}, module)
        return container.sealed(module, embedding, description, target)


def _kept(program: SymbolicProgram) -> tuple[dict[str, ir.Module], str]:
    """Return by platform the module, with rules, that a program comes from; or none, and why."""
    origin = program.origin or program
    if (kept := origin.stored.kept) is not None:
        modules = kept.modules()
        return {name: modules[name] for name in program.platforms}, ""
    if origin.order is not None:
        return {}, origin.stored.why_not or "so had what it comes from"
    try:
        with tracing.whole_tracebacks():
            return keeping.of(origin.flat, origin.in_avals, program.platforms), ""
    except Exception as error:  # whatever JAX or a rule raises; then the first order is all
        return {}, headline(error)


def _stages(program: SymbolicProgram) -> tuple[Stage, ...]:
    """Return the passes that derive the program from the module or export that is saved."""
    stored = (program.origin or program).stored
    kept = stored.kept or stored.exports
    return (*(kept.stages if kept else ()), *program.stages)


def _exports_into(module: ir.Module, exports: Exports, stages: Sequence[Stage]) -> dict[str, Any]:
    """Merge an export and its derivatives into a module; return the metadata for `_exports`."""
    written = [
        {**_symbolic.describe(each), "entry": _linked(module, EXPORTED, _module_of(each))}
        for each in exports.chain
    ]
    return {
        "functions": written,
        "platforms": list(exports.exported.platforms),
        keeping.STAGES: list(map(str, stages)),
    }


def _exports(module: ir.Module, described: Any) -> Exports:
    """Rebuild the export that `_exports_into` has put into a module."""
    try:
        functions, platforms = list(described["functions"]), tuple(described["platforms"])
        stages = tuple(map(keeping.stage, described[keeping.STAGES]))
        with as_ours():
            chain = [
                _symbolic.restore(alone(module, each["entry"]), each, platforms, MAIN)
                for each in functions
            ]
        return Exports.of(chain, stages)
    except (AttributeError, KeyError, TypeError, IndexError, ValueError, PipelineError) as error:
        raise ArtifactError(
            f"the file's metadata are damaged: {EXPORTS}: {error}", do="save the program again"
        ) from error


def _refuse_several_devices(module: ir.Module) -> None:
    _meshes.drop_without_axes(module)
    if found := _meshes.shardings(module):
        raise ArtifactError(
            "a program over several devices cannot be saved while dimensions are symbols",
            where=next(filter(None, map(locations.user_line_of, found)), None),
            do="save program.with_shapes(…), which keeps its shardings; where nothing is laid out "
            "over devices, save it outside of jax.set_mesh",
        )


def _exported(program: SymbolicProgram, kind: str) -> Any:
    """Export the function of a kind by JAX; raise MissingRuleError if JAX cannot."""
    if kind in program.stored.exported:
        return program.stored.exported[kind]()
    function, inputs = _function(program, kind)
    try:
        with tracing.whole_tracebacks():
            return jax.export.export(jax.jit(function), platforms=program.platforms)(*inputs)
    except Exception as error:
        _refuse_callbacks(function, inputs)
        is_of_rule = locations.is_raised_by_user(error)
        if not is_of_rule and not isinstance(error, TypeError | ValueError | NotImplementedError):
            raise
        words = locations.words_of(error)
        reason = f"a rule raises: {words}" if is_of_rule else str(error).partition("\n")[0]
        raise MissingRuleError(
            f"a program with symbolic dimensions has no `{kind}`: {reason}",
            do="use functions that jax.export exports and JAX differentiates once, or save "
            "program.with_shapes(…)",
        ) from error


def _refuse_callbacks(function: Flat, inputs: Sequence[Any]) -> None:
    """Raise NotPortableError if a function that JAX does not export has callbacks."""
    try:
        jaxpr = jax.make_jaxpr(function)(*inputs).jaxpr
    except Exception:  # why JAX does not export it is something else
        return
    container.refuse_callbacks_in(jaxpr)


def _function(program: SymbolicProgram, kind: str) -> tuple[Flat, list[Any]]:
    """Return the flat function of a kind, and the types of its arguments.

    `main.jvp` is `(leaves…, tangents) -> (results…, tangents)`, and `main.vjp` is
    `(leaves…, cotangents) -> cotangents`, with those of inexact values only.
    """
    ins, outs = program.in_avals, program.out_avals
    wrt, moved = (tuple(i for i, a in enumerate(each) if is_inexact(a)) for each in (ins, outs))
    cotangents = SelectResults(tuple(range(len(outs), len(outs) + len(wrt))))
    stages, more = {
        MAIN: ((), []),
        JVP: ((ForwardMode(wrt=wrt),), [ins[i] for i in wrt]),
        VJP: ((ReverseMode(wrt=wrt, outs=moved), cotangents), [outs[i] for i in moved]),
    }[kind]
    return symbolic_in_jax.behind(program.flat, stages), [*ins, *more]


def _module_of(exported: Any) -> ir.Module:
    return _module.parse(bytes(exported.mlir_module_serialized), _jax.context())


def _linked(module: ir.Module, kind: str, derivative: ir.Module) -> str:
    """Merge the entry of a derivative into the module of `@main`, and return its name."""
    symbols = ir.SymbolTable(derivative.operation)
    symbols.set_symbol_name(symbols[MAIN], kind)
    name = link.merge(module, derivative, kind)
    make_private(ir.SymbolTable(module.operation)[name])
    return name


def load(module: ir.Module, trees: Any, metadata: dict[str, Any]) -> SymbolicProgram:
    """Make a symbolic program of a module and its metadata."""
    platforms = tuple(_variants.entries_of(metadata))
    described = metadata[_symbolic.METADATA]
    with as_ours():
        in_avals, out_avals = _symbolic.signature(described[MAIN])

    @functools.cache
    def exported(kind: str) -> Any:
        with as_ours():
            function = alone(module, described[kind]["entry"])
            return _symbolic.restore(function, described[kind], platforms, kind)

    in_tree, out_tree = trees
    if (in_tree.num_leaves, out_tree.num_leaves) != (len(in_avals), len(out_avals)):
        raise ArtifactError(
            "the file's trees have other numbers of leaves than @main", do="save the program again"
        )
    interface = Interface(
        in_tree,
        out_tree,
        tuple(map(_struct, in_avals)),
        tuple(map(_struct, out_avals)),
        loaded_program.paths_of(in_tree, metadata),
    )
    kept = keeping.Kept.read(module, metadata)
    exports = _exports(module, metadata[EXPORTS]) if EXPORTS in metadata else None
    found: Callable[..., Program] | None = kept.program if kept else None
    if exports is not None:
        found = functools.partial(exports.program, platforms)
    return SymbolicProgram(
        interface,
        _flat_of(exported, described, in_avals),
        platforms,
        None if found is None else functools.partial(_member, found, interface),
        order=int(VJP in described),
        stored=StoredForms(
            {kind: functools.partial(exported, kind) for kind in described},
            kept,
            exports,
            str(metadata.get(keeping.WHY_NOT, "")),
        ),
    )


def _member(
    found: Callable[..., Program], interface: Interface, values: Mapping[str, int]
) -> Program:
    """Return the program for these sizes; raise ArtifactError if the file does not yield it."""
    sized = functools.partial(dimensions.sized, values)
    ins, outs = tuple(map(sized, interface.in_avals)), tuple(map(sized, interface.out_avals))
    try:
        return found(dataclasses.replace(interface, in_avals=ins, out_avals=outs), values)
    except ArtifactError:
        raise
    except PullbackError as error:
        raise ArtifactError(error.message, where=error.where, do=error.do) from error


def _flat_of(exported: Callable[[str], Any], described: Any, in_avals: Sequence[Any]) -> Flat:
    """Return the flat function of a file, with the file's derivatives as its rules."""
    main, forward, backward = (
        lambda *leaves, kind=kind: exported(kind).call(*leaves) for kind in (MAIN, JVP, VJP)
    )
    if VJP not in described:
        return main
    if JVP not in described:
        return symbolic_in_jax.differentiable(main, backward)
    floats = [i for i, aval in enumerate(in_avals) if is_inexact(aval)]
    tangents = len(described[JVP]["in_avals"]) - len(in_avals)  # in older files not of all
    return symbolic_in_jax.differentiable_both_ways(main, forward, backward, floats[:tangents])


def _struct(aval: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype)
