"""Run `pullback info`: describe a saved program without running it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

import pullback
from pullback import Program
from pullback.autodiff import registry
from pullback.errors import UsageError
from pullback.ir import ops
from pullback.program.record import result_paths, spell_types
from pullback.program.symbolic import SymbolicProgram
from pullback.tools.module_io import is_text, standard_input
from pullback.tools.targets import naming
from pullback_runtime._jax import constraints_in
from pullback_runtime.call import _meshes
from pullback_runtime.call._arguments import spell
from pullback_runtime.files import _artifact, _container, _entries


def info(file: str, entry: str | None, allow_custom_calls: tuple[str, ...], as_json: bool) -> None:
    """Show the signature, rules, platforms, versions and sizes of FILE, or of `-` for stdin."""
    if file.endswith(".py"):
        raise UsageError(
            f"`{file}` is a file of Python, and `pullback info` describes saved programs and MLIR",
            do=f"show a function of it: pullback dump {file}:function",
        )
    source = standard_input() if file == "-" else Path(file)
    content = _artifact.read_bytes(source)
    with _artifact.naming_file(source), naming(file):
        program = pullback.load(
            content, entry=entry or "main", allow_custom_calls=allow_custom_calls
        )
    found = facts(content, program, entry or "main")
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    for label, text in rows(found):
        click.echo(f"{label:18}{text}")


def facts(content: Any, program: Program | SymbolicProgram, entry: str) -> dict[str, Any]:
    """Return what a file says of a program, as values of JSON."""
    found = {**_file(content, entry), "platforms": list(program.platforms)}
    if isinstance(program, SymbolicProgram):
        found["symbols"] = [*program.symbols]
        found["constraints"] = [*constraints_in(program.in_avals)]
    elif program.environment.axes:
        found["mesh"] = dict(program.environment.axes)
    if len(program.entries) > 1:
        found["entries"] = {name: spell_types(each) for name, each in program.entries.items()}
    found["arguments"] = _values(program.arg_paths, program.in_avals)
    found["results"] = _values(result_paths(program), program.out_avals)
    if isinstance(program, Program) and program.pattern is not None:
        found["pattern"] = {
            "shape": list(program.pattern.shape),
            "non-zeros": program.pattern.nnz,
            "colors": program.pattern.num_colors,
            "compressed": program.pattern.compressed,
        }
    if isinstance(program, SymbolicProgram):
        return {**found, "derivatives": _orders(program)}
    operations = program.module.body.operations
    if "pullback" not in found and not program.environment.lost_after:
        found["without rules"] = _without_rules(program)
    if program.environment.lost_at:
        found["lost rules"] = [*program.environment.lost_at]
    return {
        **found,
        "rules": _rules(program),
        "calls with rules": len(list(ops.walk_calls(program.module))),
        "functions": sum(op.operation.name == "func.func" for op in operations),
    }


def _orders(program: SymbolicProgram) -> str:
    if program.member is not None:
        return "of any order"
    because = f": {program.stored.why_not}" if program.stored.why_not else ""
    return "none" if program.order == 0 else f"of first order, both modes{because}"


def _values(paths: Sequence[str], avals: Sequence[Any]) -> list[dict[str, str]]:
    pairs = zip(paths, avals, strict=True)
    return [{"path": path, "type": spell(aval)} for path, aval in pairs]


def _file(content: Any, entry: str) -> dict[str, Any]:
    found: dict[str, Any] = {"size": len(content)}
    if not _container.is_bytecode(content):
        text = is_text(content)
        return {**found, "format": "MLIR text" if text else "what jax.export serialised"}
    layout = _container.read_layout(content)
    found["format"] = "MLIR bytecode" + (" of a saved program" if layout.metadata else "")
    found["written by"] = layout.producer
    metadata = layout.metadata or {}
    if metadata:
        name = _entries.find(entry, _entries.names_of(metadata))
        metadata = _entries.metadata_of(metadata, name)
    found |= {name: str(metadata[name]) for name in ("pullback", "jax") if name in metadata}
    return found | ({"order": metadata["order"]} if "order" in metadata else {})


def _rules(program: Program) -> list[dict[str, Any]]:
    """Return what has rules, with the messages of those that raise."""
    calls = ops.walk_calls(program.module)
    exported = {call.decomposition for call in calls if call.rule_key is not None}
    return [
        {
            "op": each["op"],
            "function": each["function"],
            "rules": list(each["rules"]),
            "exported": each["function"] in exported,
            "refused": {k: " ".join(said.split()) for k, said in each.get(ops.REFUSED, {}).items()},
        }
        for each in ops.rule_inventory(program.module)
    ]


def _without_rules(program: Program) -> list[dict[str, Any]]:
    """Return which functions and composites of a foreign module `rules=` can give a rule."""
    registry.load_all()
    calls = ops.calls_by_name(program.module)
    return [
        {
            "name": name,
            "kind": "function" if ops.composite_name(each[0]) is None else "composite",
            "calls": len(each),
        }
        for name, each in sorted(calls.items())
        if name not in registry.RULES
    ]


_HOW = (
    "pb.load(file, rules={name: function}), function with jax.custom_jvp or custom_vjp; "
    "to a composite also by --load-rules"
)


def rows(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each fact, in the order of `facts`."""
    for label, value in found.items():
        match label:
            case "size":
                yield label, f"{value:,} bytes"
            case "order":
                yield "rules", f"for derivatives up to order {value}"
            case "symbols":
                yield label, ", ".join([*value, *found["constraints"]])
            case "mesh":
                yield label, _meshes.text(tuple(value.items()))
            case "entries":
                yield from (("entry", f"{name} {spelt}") for name, spelt in value.items())
            case "arguments" | "results":
                yield from ((label[:-1], f"{each['path']}: {each['type']}") for each in value)
            case "pattern":
                height, width = value["shape"]
                yield label, f"{height} x {width}, {value['non-zeros']:,} non-zeros"
                yield "colors", f"{value['colors']} ({value['compressed']})"
            case "rules" | "without rules" | "lost rules":
                yield from _ROWS[label](value)
            case "constraints":
                pass
            case "platforms":
                yield label, ", ".join(value)
            case _:
                yield label, str(value)


def _rows_without_rules(found: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    for each in found:
        calls = "1 call" if each["calls"] == 1 else f"{each['calls']} calls"
        yield "without a rule", f"{each['kind']} {each['name']}: {calls}"
    if found:
        yield "give one", _HOW


def _rows_of_rules(found: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    for rule in found:
        none = "the vjp of the export" if rule["exported"] else "none in the file"
        yield "rule", f"{rule['op']} @{rule['function']}: {', '.join(rule['rules']) or none}"
        for name, said in rule["refused"].items():
            yield "refusal", f"{name} of @{rule['function']}: {said}"


def _rows_of_lost_rules(found: list[str]) -> Iterator[tuple[str, str]]:
    return (("lost rule", f"of {call}") for call in found)


_ROWS: dict[str, Callable[[list[Any]], Iterator[tuple[str, str]]]] = {
    "rules": _rows_of_rules,
    "without rules": _rows_without_rules,
    "lost rules": _rows_of_lost_rules,
}
