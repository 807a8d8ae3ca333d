"""Run `pullback info`: describe a saved program without running it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

import pullback
from pullback import Program
from pullback.files.describe import rule_inventory
from pullback.files.loaded_program import ORDER
from pullback.ir import ops
from pullback.program.argument_leaves import spell
from pullback.program.derivation import result_paths
from pullback.program.symbolic import SymbolicProgram
from pullback.tools.module_io import is_text, standard_input
from pullback.tools.targets import naming
from pullback_runtime import _artifact, _container, _entries, _meshes, _symbolic


def info(file: str, entry: str | None, allow_custom_calls: tuple[str, ...]) -> None:
    """Show the signature, rules, platforms, versions and sizes of FILE, or of `-` for stdin."""
    content = _artifact.read_bytes(standard_input() if file == "-" else Path(file))
    with naming(file):
        program = pullback.load(
            content, entry=entry or "main", allow_custom_calls=allow_custom_calls
        )
    for label, text in rows(content, program, entry or "main"):
        click.echo(f"{label:18}{text}")


def _orders(program: SymbolicProgram) -> str:
    if program.member is not None:
        return "of any order"
    because = f": {program.stored.why_not}" if program.stored.why_not else ""
    return "none" if program.order == 0 else f"of first order, both modes{because}"


def rows(content: Any, program: Program | SymbolicProgram, entry: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each fact."""
    yield from _file(content, entry)
    yield "platforms", ", ".join(program.platforms)
    if isinstance(program, SymbolicProgram):
        yield "symbols", ", ".join([*program.symbols, *_symbolic.constraints_of(program.in_avals)])
    elif program._environment.axes:
        yield "mesh", _meshes.text(program._environment.axes)
    if len(program.entries) > 1:
        for name, each in program.entries.items():
            yield "entry", f"{name} {each._spelt()}"
    for path, aval in zip(program.arg_paths, program.in_avals, strict=True):
        yield "argument", f"{path}: {spell(aval)}"
    paths = result_paths(program)
    for path, aval in zip(paths, program.out_avals, strict=True):
        yield "result", f"{path}: {spell(aval)}"
    if isinstance(program, SymbolicProgram):
        yield "derivatives", _orders(program)
        return
    yield from _rules(program)
    functions = sum(op.operation.name == "func.func" for op in program.module.body.operations)
    yield "functions", str(functions)


def _file(content: Any, entry: str) -> Iterator[tuple[str, str]]:
    yield "size", f"{len(content):,} bytes"
    if not _container.is_bytecode(content):
        yield "format", "MLIR text" if is_text(content) else "what jax.export serialised"
        return
    layout = _container.read_layout(content)
    yield "format", "MLIR bytecode" + (" of a saved program" if layout.metadata else "")
    yield "written by", layout.producer
    metadata = layout.metadata or {}
    if metadata:
        name = _entries.find(entry, _entries.names_of(metadata))
        metadata = _entries.metadata_of(metadata, name)
    for name in ("pullback", "jax"):
        if name in metadata:
            yield name, str(metadata[name])
    if ORDER in metadata:
        yield "rules", f"for derivatives up to order {metadata[ORDER]}"


def _rules(program: Program) -> Iterator[tuple[str, str]]:
    calls = list(ops.walk_calls(program.module))
    exported = {call.decomposition for call in calls if call.rule_key is not None}
    for entry in rule_inventory(program.module):
        none = "the vjp of the export" if entry["function"] in exported else "none in the file"
        names = ", ".join(entry["rules"]) or none
        yield "rule", f"{entry['op']} @{entry['function']}: {names}"
        for name, said in entry.get(ops.REFUSED, {}).items():
            yield "refusal", f"{name} of @{entry['function']}: {' '.join(said.split())}"
    yield "calls with rules", str(len(calls))
