"""Modules that Reactant wrote: load them, differentiate them, compare with finite differences.

    python -m tests.reactant FOLDER [--only PART]

FOLDER has `.mlir` files, such as a checkout of EnzymeAD/Enzyme-JAX or its `test/lit_tests`. A file
may have several modules; those that Reactant has named are taken, with Float32 made Float64. It
prints a table in Markdown, and ends with 1 if a derivative is wrong, or an error is none of ours.
"""

from __future__ import annotations

import argparse
import multiprocessing
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import pullback as pb
import pullback_runtime

PARTS = re.compile(r"^// -----.*$|^(?=module\b)", re.MULTILINE)
NAMED_BY_REACTANT = re.compile(r'module @"?reactant')
FUNCTION = re.compile(r'func\.func (?:public |private )?@(?:"([^"]+)"|([\w.$-]+))')
MOST_ELEMENTS = 1_000_000
LIMIT = 60
MODES = ("forward", "reverse")
STEPS = (1e-3, 1e-5, 1e-7, 1e-9)
"""Of finite differences: small ones where numbers grow fast, as in `kernel_durbin`."""
TOLERANCE = {"float32": 1e-2}
"""How far slopes in a type may be off, relative to the greatest; 1e-5 in others."""
EQUAL = "equal"


class Outcome(NamedTuple):
    """How a step ended: `EQUAL`, or the reason why not; and whether that is a fault."""

    text: str
    is_fault: bool = False


def modules(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each module of Reactant below a folder."""
    for file in sorted(folder.rglob("*.mlir")):
        for number, part in enumerate(PARTS.split(file.read_text())):
            code = re.sub(r"^\s*//.*$", "", part, flags=re.MULTILINE)
            if NAMED_BY_REACTANT.search(code):
                yield f"{file.relative_to(folder)}:{number}", code


def entry_of(code: str) -> str:
    """Return @main, or else the first function of a module."""
    names = [quoted or plain for quoted, plain in FUNCTION.findall(code)]
    return "main" if "main" in names or not names else names[0]


def check(code: str) -> dict[str, Outcome]:
    """Load and differentiate a module; return how each step ended, until one that failed."""
    wide = re.sub(r"f32\b", "f64", code)
    try:
        try:
            program = pb.load(wide.encode(), entry=entry_of(code))
        except pb.ArtifactError:  # an array of Float32 in hexadecimal digits
            program = pb.load(code.encode(), entry=entry_of(code))
    except Exception as error:
        return {"loads": _failed(error)}
    if sum(int(np.prod(aval.shape)) for aval in program.in_avals) > MOST_ELEMENTS:
        return {"loads": Outcome(EQUAL), **dict.fromkeys(MODES, Outcome("too large to run here"))}
    found = {"loads": Outcome(EQUAL)}
    rng = np.random.default_rng(0)
    x = [_sample(aval, rng) for aval in program.in_avals]
    for name, compare in (("forward", _forward), ("reverse", _reverse)):
        try:
            found[name] = compare(program, x, rng)
        except Exception as error:
            found[name] = _failed(error)
    return found


def apart(code: str) -> dict[str, Outcome]:
    """Check a module in a process of its own, which may take `LIMIT` seconds."""
    with multiprocessing.get_context("fork").Pool(1) as pool:
        try:
            return pool.apply_async(_check_wide, (code,)).get(LIMIT)
        except multiprocessing.TimeoutError:
            loads = "loads", Outcome(EQUAL)
            return dict([loads, *((m, Outcome(f"takes over {LIMIT} s")) for m in MODES)])


def _check_wide(code: str) -> dict[str, Outcome]:
    with jax.enable_x64(True):
        return check(code)


def _sample(aval: Any, rng: Any) -> Any:
    if not np.issubdtype(aval.dtype, np.inexact):
        return rng.integers(0, 2, aval.shape).astype(aval.dtype)
    parts = [rng.uniform(0.02, 0.08, aval.shape) for _ in range(2)]
    value = parts[0] + 1j * parts[1] if aval.dtype.kind == "c" else parts[0]
    return np.asarray(value, aval.dtype)


def _is_inexact(value: Any) -> bool:
    return bool(np.issubdtype(value.dtype, np.inexact))


def _slope(program: Any, x: list[Any], dx: list[Any], step: float) -> list[Any]:
    """Return central differences of the inexact results along a direction."""
    ends = []
    for sign in (1, -1):
        moved = iter(dx)
        at = [v + sign * step * next(moved) if _is_inexact(v) else v for v in x]
        ends.append([np.asarray(y) for y in jax.tree.leaves(program(*at)) if _is_inexact(y)])
    return [(a - b) / (2 * step) for a, b in zip(*ends, strict=True)]


def _forward(program: Any, x: list[Any], rng: Any) -> Outcome:
    if not any(map(_is_inexact, x)) or not any(map(_is_inexact, program.out_avals)):
        return Outcome("nothing to differentiate")
    dx = [_sample(v, rng) for v in x if _is_inexact(v)]
    directions = iter(dx)
    tangents = [next(directions) if _is_inexact(v) else None for v in x]
    _, dy = program.jvp()(*x, *tangents)
    found = [np.asarray(v) for v in jax.tree.leaves(dy)]
    return _compared(found, [_slope(program, x, dx, step) for step in STEPS])


def _reverse(program: Any, x: list[Any], rng: Any) -> Outcome:
    if not any(map(_is_inexact, x)) or not any(map(_is_inexact, program.out_avals)):
        return Outcome("nothing to differentiate")
    dx = [_sample(v, rng) for v in x if _is_inexact(v)]
    cts = [_sample(aval, rng) if _is_inexact(aval) else None for aval in program.out_avals]
    _, gradient = program.vjp()(*x, cts[0] if len(cts) == 1 else tuple(cts))
    found = sum(np.sum(g * v) for g, v in zip(jax.tree.leaves(gradient), dx, strict=True))
    kept = [ct for ct in cts if ct is not None]
    slopes = (_slope(program, x, dx, step) for step in STEPS)
    wanted = [sum(np.sum(ct * s) for ct, s in zip(kept, each, strict=True)) for each in slopes]
    return _compared([np.real(found)], [[np.real(each)] for each in wanted])


def _compared(found: list[Any], slopes: list[list[Any]]) -> Outcome:
    """Compare derivatives with the slopes for each step; the nearest of these counts."""
    far = min(max(map(_distance, found, wanted), default=0.0) for wanted in slopes)
    tolerance = max((TOLERANCE.get(str(v.dtype), 1e-5) for v in found), default=0.0)
    return Outcome(EQUAL) if far <= tolerance else Outcome(f"DIFFERENT by {far:.1e}", True)


def _distance(found: Any, wanted: Any) -> float:
    size = max(1.0, float(np.max(np.abs(wanted), initial=0.0)))
    return float(np.max(np.abs(found - wanted), initial=0.0)) / size


def _failed(error: Exception) -> Outcome:
    first = str(error).strip().partition("\n")[0]
    dialect = re.search(r"Dialect `(\w+)' not found", first)
    if dialect is not None:
        return Outcome(f"has ops of `{dialect[1]}`")
    if "unregistered dialect" in first:
        return Outcome("has ops or attributes of a dialect that jaxlib does not have")
    if first.startswith("cannot pass values of type memref"):
        return Outcome("a kernel of memrefs")
    is_ours = isinstance(error, (pb.PullbackError, pullback_runtime.PullbackRuntimeError))
    return Outcome(first if is_ours else f"{type(error).__name__}: {first}", not is_ours)


def main() -> int:
    """Check all modules, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.reactant")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="a part of the names of modules")
    given = parser.parse_args()
    counts: Counter[tuple[str, str]] = Counter()
    faults, total = [], 0
    for name, code in modules(given.folder):
        if given.only not in name:
            continue
        total += 1
        outcomes = apart(code)
        for step, outcome in outcomes.items():
            counts[step, outcome.text] += 1
            faults += [f"{name}: {step}: {outcome.text}"] if outcome.is_fault else []
        last = list(outcomes.values())[-1].text
        print(f"{name}: {last}", file=sys.stderr)
    print(f"{total} modules\n\n| | modules |\n|---|---|")
    for step in ("loads", "forward", "reverse"):
        for (of, text), count in counts.most_common():
            if of == step:
                print(
                    f"| {step}: {'yes' if step == 'loads' and text == EQUAL else text} | {count} |"
                )
    print("\n".join(faults), file=sys.stderr)
    return bool(faults) or not total


if __name__ == "__main__":
    sys.exit(main())
