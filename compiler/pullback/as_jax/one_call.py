"""Call a module for one of its ops, as one primitive, where JAX has no form of the op."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pullback import _jax
from pullback._jax import ir
from pullback.as_jax.table import Array, aval_of
from pullback.ir import build
from pullback.ir.modules import clone, take_entry
from pullback.program.record import Interface
from pullback_runtime import call_module
from pullback_runtime.files._load import flat_trees

ENTRY = "pullback_call"


def one_call(program: Any, operation: Any) -> Callable[..., list[Array]]:
    """Return a function that calls the module for one of its ops, whose rules it keeps."""
    module = clone(program.module)
    operands = [v.type for v in operation.operands]
    results = [v.type for v in operation.results]
    location = operation.location
    with _jax.working_in(module):
        kind = ir.FunctionType.get(operands, results)
        with ir.InsertionPoint(module.body), location:
            function = _jax.func.FuncOp(ENTRY, kind)
        block = function.add_entry_block()
        with build.inserting(ir.InsertionPoint(block), location):
            build.emit("func.return", (), build.clone(operation, list(block.arguments)).results)
        take_entry(module, ENTRY)
    ins, outs = (tuple(map(aval_of, types)) for types in (operands, results))
    in_tree, out_tree = flat_trees(len(ins), len(outs))
    interface = Interface(
        in_tree, out_tree, ins, outs, tuple(f"operand {i}" for i in range(len(ins)))
    )
    handle = program.with_module(module, interface=interface, constants=()).handle
    return lambda *args: call_module(handle, *args)
