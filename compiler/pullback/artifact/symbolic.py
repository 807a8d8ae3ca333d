"""Programs with symbolic dimensions in a file: the function, its rules, its first derivatives."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import jax

from pullback import _jax
from pullback._errors import MissingRuleError, headline
from pullback._interface import Interface
from pullback._jax import dimensions, ir, tracing
from pullback.artifact import constants, high_level, kept as keeping, sealing, write
from pullback.artifact.errors import ArtifactError, NotPortableError, as_ours
from pullback.artifact.variants import alone
from pullback.frontend import link, locations, refusals
from pullback.symbolic import JVP, MAIN, VJP, SymbolicProgram
from pullback_runtime import _meshes, _module, _symbolic, _trees, _variants
from pullback_runtime._callable import argument_paths

if TYPE_CHECKING:
    from pullback._program import Program

CALLBACK = "callback"


def pieces(program: SymbolicProgram, target: str | None = None) -> list[Any]:
    """The file of a program, as a row of buffers.

    Raises: ArtifactError and its kinds, as for other programs.
    """
    exported = {MAIN: _exported(program, MAIN)}
    kept, why_not = _kept(program)
    for kind in () if program.order == 0 else (JVP, VJP):
        try:
            exported[kind] = _exported(program, kind)
        except MissingRuleError as error:
            if not kept or (error.__cause__ and refusals.words(error.__cause__)):
                raise
    modules = {kind: _module_of(each) for kind, each in exported.items()}
    module = modules.pop(MAIN)
    names = {kind: _linked(module, kind, each) for kind, each in modules.items()}
    description: dict[str, Any] = {}
    if kept:
        description[keeping.METADATA] = keeping.put_into(module, kept)
        high_level.wrap_chlo(module, expand=False)
        write.drop_sharding_hints(module)
    elif why_not:
        description[keeping.WHY_NOT] = why_not
    sealing.refuse_callbacks(module)
    _refuse_several_devices(module)
    with as_ours():
        description |= {
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


def _kept(program: SymbolicProgram) -> tuple[dict[str, ir.Module], str]:
    """For each platform, the function with its rules; or none, and why."""
    if program.kept is not None:
        return program.kept.modules(), ""
    if program.order is not None:
        return {}, "it is a derivative of a program from a file"
    try:
        with tracing.whole_tracebacks():
            return keeping.of(program._flat, program.in_avals, program.platforms), ""
    except Exception as error:  # whatever JAX or a rule raises; then the first order is all
        return {}, headline(error)


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
    kept = keeping.Kept.read(module, metadata)
    fixed: Any = None
    if kept is not None:
        paths = argument_paths(example)
        fixed = _fixed(kept, trees, in_avals, out_avals, paths)
    return SymbolicProgram(
        function,
        example,
        platforms,
        functions,
        order=int(VJP in described),
        fixed=fixed,
        kept=kept,
        is_endless=kept is not None,
        why_not=str(metadata.get(keeping.WHY_NOT, "")),
    )


def _fixed(kept: Any, trees: Any, in_avals: Any, out_avals: Any, paths: Any) -> Any:
    """The program for arguments of given types, made once for each."""

    @functools.lru_cache(maxsize=256)
    def of_shapes(*shapes: tuple[int, ...]) -> Program:
        values = dimensions.sizes(in_avals, trees[0], shapes)

        def sized(avals: Any) -> tuple[jax.ShapeDtypeStruct, ...]:
            found = [(dimensions.shape_in(aval.shape, values), aval.dtype) for aval in avals]
            return tuple(jax.ShapeDtypeStruct(*each) for each in found)

        interface = Interface(trees[0], trees[1], sized(in_avals), sized(out_avals), paths)
        program: Program = kept.program(interface, values)
        return program

    return lambda *leaves: of_shapes(*(leaf.shape for leaf in leaves))
