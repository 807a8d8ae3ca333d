"""Programs with symbolic dimensions in a file: the function and its first derivatives."""

from __future__ import annotations

import functools
from typing import Any

import jax

from pullback import _jax
from pullback._errors import MissingRuleError
from pullback._jax import ir, tracing
from pullback.artifact import constants, sealing
from pullback.artifact.errors import ArtifactError, NotPortableError, as_ours
from pullback.artifact.variants import alone
from pullback.frontend import link, locations, refusals
from pullback.symbolic import JVP, MAIN, VJP, SymbolicProgram
from pullback_runtime import _meshes, _module, _symbolic, _trees, _variants

CALLBACK = "callback"


def pieces(program: SymbolicProgram, target: str | None = None) -> list[Any]:
    """The file of a program, as a row of buffers.

    Raises: ArtifactError and its kinds, as for other programs.
    """
    kinds = (MAIN,) if program.order == 0 else (MAIN, JVP, VJP)
    exported = {kind: _exported(program, kind) for kind in kinds}
    modules = {kind: _module_of(each) for kind, each in exported.items()}
    module = modules[MAIN]
    names = {kind: _linked(module, kind, modules[kind]) for kind in kinds[1:]}
    sealing.refuse_callbacks(module)
    _refuse_several_devices(module)
    with as_ours():
        description = {
            **sealing.versions(),
            "platforms": list(program.platforms),
            **sealing.described_trees(program),
            _symbolic.METADATA: {
                kind: {**_symbolic.describe(each), "entry": names.get(kind, MAIN)}
                for kind, each in exported.items()
            },
        }
        embedding = constants.Embedding.of((), module)
        return sealing.sealed(module, embedding, description, target)


def _refuse_several_devices(module: ir.Module) -> None:
    _meshes.drop_without_axes(module)
    if found := _meshes.shardings(module):
        raise ArtifactError(
            "a program over several devices cannot be saved while dimensions are symbols",
            where=next(filter(None, map(locations.user_line_of, found)), None),
            do="trace it for arrays of known shapes",
        )


def _exported(program: SymbolicProgram, kind: str) -> Any:
    """What JAX exports, or why it does not, as an error of ours."""
    try:
        with tracing.whole_tracebacks():
            return program.exported(kind)
    except Exception as error:
        said = refusals.words(error)
        if said is None and not isinstance(error, TypeError | ValueError | NotImplementedError):
            raise
        reason = f"a rule refuses: {said}" if said else str(error).partition("\n")[0]
        if CALLBACK in reason.lower():
            raise NotPortableError(
                "a program that calls Python in this process cannot be saved",
                where=f"JAX: {reason}",
                do="remove the callback or debug print, or put it outside the traced function",
            ) from error
        raise MissingRuleError(
            f"a program with symbolic dimensions has no `{kind}`: {reason}",
            do="use functions that jax.export exports and JAX differentiates once, or save "
            "program.with_shapes(…)",
        ) from error


def _module_of(exported: Any) -> ir.Module:
    return _module.parse(bytes(exported.mlir_module_serialized), _jax.context())


def _linked(module: ir.Module, kind: str, derivative: ir.Module) -> str:
    """Puts the entry of a derivative beside `@main`; returns its name."""
    symbols = ir.SymbolTable(derivative.operation)
    symbols.set_symbol_name(symbols[MAIN], kind)
    name = link.merge(module, derivative, kind)
    with module.context:
        entry = ir.SymbolTable(module.operation)[name]
        entry.attributes["sym_visibility"] = ir.StringAttr.get("private")
    return name


def load(module: ir.Module, trees: Any, metadata: dict[str, Any]) -> SymbolicProgram:
    """The program in a module with such metadata."""
    platforms = tuple(_variants.entries_of(metadata))
    described = metadata[_symbolic.METADATA]
    with as_ours():
        in_avals, out_avals = _symbolic.signature(described[MAIN])

    @functools.cache
    def stored(kind: str) -> Any:
        with as_ours():
            function = alone(module, described[kind]["entry"])
            return _symbolic.restore(function, described[kind], platforms, kind)

    in_tree, out_tree = trees
    if (in_tree.num_leaves, out_tree.num_leaves) != (len(in_avals), len(out_avals)):
        raise ArtifactError(
            "the file's trees have other numbers of leaves than @main", do="save the program again"
        )
    structs = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in in_avals]

    def function(*args: Any, **kwargs: Any) -> Any:
        leaves = _trees.flatten_call(in_tree, args, kwargs)
        return jax.tree.unflatten(out_tree, stored(MAIN).call(*leaves))

    example = jax.tree.unflatten(in_tree, structs)
    functions = {kind: functools.partial(stored, kind) for kind in described}
    return SymbolicProgram(function, example, platforms, functions, order=int(VJP in described))
