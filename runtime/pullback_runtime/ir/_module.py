"""Read a StableHLO module from wherever it is, and make it ready to be called.

A module is an MLIR module object, text, bytecode (plain, or a StableHLO portable artifact) or a
file with one of these. The caller's module is never touched: work happens on a copy parsed from
its bytecode, in the runtime's own context.
"""

from __future__ import annotations

import functools
import graphlib
import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import jax
import numpy as np

from pullback_runtime import _jax, _mlir
from pullback_runtime._errors import ModuleError
from pullback_runtime._jax import ir
from pullback_runtime._mlir import remedy_of, to_bytecode as to_bytecode, without_flags
from pullback_runtime.files._container import is_bytecode, is_portable
from pullback_runtime.ir import _contexts, _mhlo, _resources
from pullback_runtime.ir._dtypes import element_dtype
from pullback_runtime.ir._erasure import erase, erasing
from pullback_runtime.ir._nesting import refuse_deep

PULLBACK_COMPOSITES = "pullback."
PULLBACK_LINEAR_CALL = "pullback.linear_call"
TRANSPOSE_ONLY = "transpose_only"
MEMORY_KIND = "mhlo.memory_kind"
"""Attribute of a result of an entry: the memory that it is in, such as that of the host."""

LARGE = 1 << 18
"""Bound the bytes of a module that shares a context; a larger one is compiled by itself."""

Aval: TypeAlias = jax.ShapeDtypeStruct


@dataclass(frozen=True)
class Prepared:
    """Bytecode in which only `entry` is public and no pullback op is left, and its signature."""

    bytecode: bytes
    entry: str
    in_avals: tuple[Aval, ...]
    out_avals: tuple[Aval, ...]
    on_host: tuple[int, ...]


def read(module: Any) -> bytes:
    """Return the bytes of `module`: bytecode as it is, or text in UTF-8."""
    if isinstance(module, bytes | bytearray):
        return bytes(module)
    if isinstance(module, os.PathLike) or (isinstance(module, str) and _is_path(module)):
        return _read_file(Path(module))
    if isinstance(module, str):
        return module.encode()
    if isinstance(module, ir.Module):
        return to_bytecode(module)
    raise ModuleError(
        f"cannot read a module from {type(module).__name__}",
        do="pass an MLIR module, its text or bytecode, or the path of a file",
    )


def _is_path(text: str) -> bool:
    """Return True if a string is a path: it has no brace, as the text of a module always has."""
    return "{" not in text


def _read_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ModuleError(
            f"cannot read the module file {str(path)!r}: {error.strerror or error}",
            do="check the path; a module given as text must contain its functions",
        ) from error


def parse(
    content: bytes, context: ir.Context | None = None, *, strings: bytes | None = None
) -> ir.Module:
    """Parse a new module from text, bytecode or a portable artifact.

    Args:
      strings: the section of strings of a file that a save wrote, whose module was verified then;
        `context` must be one that is kept, because passes are memoized for it.
    """
    context = context or _jax.context()
    _contexts.keeps(context, len(content))
    portable = is_portable(content)
    try:
        if portable and strings is not None:
            return _jax.deserialize_verified(content, context, strings)
        module = _mlir.parse(content, portable, context)
        if not portable and _mhlo.may_be_in(content):
            with context:
                _mhlo.read(module)
        return module
    except (ir.MLIRError, ValueError) as error:
        raise ModuleError(
            f"the module does not parse: {without_flags(str(error))}",
            do=remedy_of(str(error))
            or "check it with `pullback-opt`; it must be StableHLO text or bytecode",
        ) from error


_NAMELESS = re.compile(r'loc\("-":(\d+):(\d+)\)')
"""A location in a text without a name, as MLIR spells it."""


def name_locations(module: ir.Module, name: str) -> None:
    """Put the name of a file into the locations of a module that was parsed from its text."""

    def named(place: Any) -> ir.Location | None:
        found = _NAMELESS.fullmatch(str(place))
        if found is None:
            return None
        return ir.Location.file(name, int(found[1]), int(found[2]), module.context)

    def visit(op: Any) -> ir.WalkResult:
        if (place := named(op.location)) is not None:
            op.location = place
        for region in op.regions:
            for block in region.blocks:
                for argument in block.arguments:
                    if (place := named(argument.location)) is not None:
                        argument.set_location(place)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)


def prepare(content: bytes, entry: str = "main") -> Prepared:
    """Parse, lower pullback ops to calls, drop what `entry` does not reach, read the signature."""
    if b"dense_resource" in content and not is_bytecode(content):
        content = to_bytecode(parse(content, _jax.fresh_context()))  # where the data can be read
    resources = _resources.read(content)
    # A context keeps all constants that it has seen. To make one takes 15 ms.
    alone = resources or len(content) > LARGE
    module = parse(content, _jax.fresh_context() if alone else None)
    function = find_entry(module, entry)
    in_avals, out_avals = signature(function, entry)
    on_host = results_on_host(function)
    with erasing():
        _reduce(module, entry)
        _resources.make_plain(module, resources)
    return Prepared(_written(module), entry, in_avals, out_avals, on_host)


def prepare_own(module: ir.Module) -> tuple[bytes, bytes | None]:
    """Do to a module of this process, in place, what `prepare` does to a copy that it parses.

    Returns: its bytecode, and the digest of that without locations; None for a large module.
    """
    with erasing():
        _reduce(module, "main")
    bytecode = _written(module)
    if _resources.read(bytecode):
        bytecode = prepare(bytecode).bytecode
    if len(bytecode) > LARGE:
        return bytecode, None
    _jax.run_unverified(module, "strip-debuginfo")
    return bytecode, hashlib.sha256(to_bytecode(module)).digest()


def _reduce(module: ir.Module, entry: str) -> None:
    """Keep what an entry reaches, without pullback ops; raise ModuleError if XLA would crash."""
    make_private(module, keep=entry)
    refuse_deep(module)
    lower_composites(module)
    drop_unreached(module)
    refuse_fatal_calls(module)


def _written(module: ir.Module) -> bytes:
    bytecode = to_bytecode(module)
    if b"lapack_" in bytecode:
        _jax.load_lapack()
    return bytecode


def find_entry(module: ir.Module, entry: str) -> Any:
    """Return the function with this name; raise ModuleError if it is missing or has no body."""
    symbols = ir.SymbolTable(module.operation)
    if entry in symbols and is_function(found := symbols[entry]):
        if found.is_external:
            raise ModuleError(
                f"@{entry} is declared, and has no body",
                do="name a function that has one, or link it",
            )
        return found
    functions = filter(is_function, module.body.operations)
    names = ", ".join(f"@{op.name.value}" for op in functions) or "none"
    raise ModuleError(
        f"the module has no function @{entry}",
        where=f"functions of the module: {names}",
        do="name the function to call: entry=…",
    )


def is_function(op: Any) -> bool:
    """Return True if `op` is a func.func."""
    return op.operation.name == "func.func"


def make_private(module: ir.Module, keep: str) -> None:
    """Make every function but `keep` private, so that symbol-dce can drop the unreached.

    Ops without a symbol, such as `llvm.module_flags`, are erased: JAX merges modules by symbols.
    """
    with module.context:
        private, public = ir.StringAttr.get("private"), ir.StringAttr.get("public")
    for op in list(module.body.operations):
        if is_function(op):
            op.attributes["sym_visibility"] = public if op.name.value == keep else private
        elif "sym_name" not in op.attributes:
            erase(op.operation)


def end_in_func_return(module: ir.Module) -> None:
    """Replace `stablehlo.return`, which MLIR lets end a function too, with `func.return`."""
    with erasing():
        for function in filter(is_function, module.body.operations):
            for block in function.regions[0].blocks:
                end = block.operations[len(block.operations) - 1].operation
                if end.name == "stablehlo.return":
                    ir.Operation.create(
                        "func.return",
                        operands=list(end.operands),
                        loc=end.location,
                        ip=ir.InsertionPoint(end),
                    )
                    erase(end)


def drop_unreached(module: ir.Module) -> None:
    """Erase the private functions that no public function reaches, by symbol-dce."""
    _jax.run_unverified(module, "symbol-dce")


def lower_composites(module: ir.Module) -> None:
    """Turn pullback's composites into calls; composites that XLA may know by name stay.

    XLA would run a composite's decomposition too, but it keeps every symbol that the attributes
    name, and so would compile rule functions that nothing calls.
    """
    composites = _jax.operations_named(module, "stablehlo.composite")
    if not composites:
        return
    named = [(op.attributes["name"].value, op) for op in composites]
    names = {name for name, _ in named}
    for name, op in named:
        if name == PULLBACK_LINEAR_CALL:
            _mark_unknown(op)
    foreign = sorted(name for name in names if not name.startswith(PULLBACK_COMPOSITES))
    excepted = f"{{except={','.join(foreign)}}}" if foreign else ""
    _jax.run_unverified(module, f"func.func(stablehlo-legalize-composite-to-call{excepted})")


def _mark_unknown(op: ir.Operation) -> None:
    """Replace a linear map known by its transpose only by a custom call that no backend has.

    The map's decomposition would compute NaN. XLA removes the call where its results are unused.
    """
    given = op.attributes.get("composite_attributes", None)
    if given is None or TRANSPOSE_ONLY not in given:
        return
    why = f"{PULLBACK_LINEAR_CALL} known by its transpose only: {given[TRANSPOSE_ONLY].value}"
    with op.context:
        attributes = {"call_target_name": ir.StringAttr.get(why)}
    marked = ir.Operation.create(
        "stablehlo.custom_call",
        results=[result.type for result in op.results],
        operands=list(op.operands),
        attributes=attributes,
        loc=op.location,
        ip=ir.InsertionPoint(op),
    )
    for old, new in zip(op.results, marked.results, strict=True):
        old.replace_all_uses_with(new)
    erase(op)


def refuse_fatal(module: Any) -> None:
    """Raise ModuleError for a module by which XLA would end the process."""
    refuse_deep(module)
    refuse_fatal_calls(module)


def refuse_fatal_calls(module: Any) -> None:
    """Raise ModuleError for calls by which XLA would end the process.

    These are recursion, and calls of functions without a body, or of missing ones, which MLIR
    allows a custom call to name. Nested modules are checked too, because XLA compiles them.
    """
    for op in module.body.operations:
        if op.operation.name == "builtin.module":
            refuse_fatal_calls(op)
    functions = [op for op in module.body.operations if is_function(op)]
    bodiless = {op.name.value for op in functions if op.is_external}
    symbols = ir.SymbolTable(module.operation)
    callees: dict[str, set[str]] = {}
    for function in functions:
        caller = function.name.value
        for call, called in _calls_in(function):
            callee = called.value
            if callee not in symbols:
                raise ModuleError(
                    f"a custom call names the function {called}, which is not there",
                    where=f"{_jax.place(call)}, in @{caller}",
                    do="add the function, or take it out of `called_computations`",
                )
            if callee in bodiless:
                raise ModuleError(
                    f"@{callee} is declared, and has no body",
                    where=f"@{caller} calls @{callee}",
                    do="add its definition to the module, or link it",
                )
            callees.setdefault(caller, set()).add(callee)
    try:
        graphlib.TopologicalSorter(callees).prepare()
    except graphlib.CycleError as error:
        cycle = error.args[1]
        raise ModuleError(
            f"@{cycle[0]} calls itself, which XLA does not run",
            where=" calls ".join(f"@{name}" for name in reversed(cycle)),
            do="write the recursion as a loop: stablehlo.while",
        ) from error


_CALLS = {"func.call": "callee", "stablehlo.composite": "decomposition"}


def _calls_in(function: Any) -> Iterator[tuple[ir.Operation, ir.FlatSymbolRefAttr]]:
    """Yield each call in a function with its callee; a custom call may have several."""
    for name, attribute in _CALLS.items():
        for call in _jax.operations_named(function.operation, name):
            yield call, call.attributes[attribute]
    for call in _jax.operations_named(function.operation, "stablehlo.custom_call"):
        for called in call.attributes.get("called_computations", ()):
            yield call, ir.FlatSymbolRefAttr(called)


def results_on_host(function: Any) -> tuple[int, ...]:
    """Return the positions of the results that a function gives in the memory of the host."""
    attributes = function.attributes
    noted = ir.ArrayAttr(attributes["res_attrs"]) if "res_attrs" in attributes else ()
    named = [{each.name: each.attr for each in ir.DictAttr(of_one)} for of_one in noted]
    return tuple(i for i, each in enumerate(named) if "host" in str(each.get(MEMORY_KIND)))


def signature(function: Any, entry: str) -> tuple[tuple[Aval, ...], tuple[Aval, ...]]:
    """Return shapes and dtypes of a function's arguments and results."""
    kind = function.type
    known: dict[ir.Type, Aval] = {}
    return (
        tuple(_avals(kind.inputs, known, entry, "argument")),
        tuple(_avals(kind.results, known, entry, "result")),
    )


def _avals(
    types: Sequence[ir.Type], known: dict[ir.Type, Aval], entry: str, what: str
) -> Iterator[Aval]:
    for index, kind in enumerate(types):
        aval = known.get(kind)
        if aval is None:
            aval = known[kind] = _aval(kind, f"{what} {index} of @{entry}")
        yield aval


def _aval(kind: ir.Type, where: str) -> Aval:
    if not isinstance(kind, ir.RankedTensorType):
        raise ModuleError(
            f"cannot pass values of type {kind}",
            where=where,
            do="pass its members one by one: as arguments, or results, of their own"
            if isinstance(kind, ir.TupleType)
            else "only ranked tensors cross the border; thread tokens inside the module",
        )
    tensor = kind
    if not tensor.has_static_shape:
        raise ModuleError(
            f"the dynamic shape of {kind} is not supported",
            where=where,
            do="make it static: the passes stablehlo-refine-arguments{types=…}, with a type for "
            "each argument, and stablehlo-refine-shapes",
        )
    if tensor.encoding is not None:
        raise ModuleError(
            f"the encoding of {kind} is not supported",
            where=where,
            do="write the type without it, as XLA takes it",
        )
    return _struct(tuple(tensor.shape), element_dtype(tensor.element_type, where))


@functools.lru_cache(maxsize=1024)
def _struct(shape: tuple[int, ...], dtype: np.dtype) -> Aval:
    """Return a type, memoized: the same types recur in a program, its derivatives and others."""
    return Aval(shape, dtype)
