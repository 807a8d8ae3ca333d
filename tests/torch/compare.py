"""Compare the derivatives of the files of `write` with those of torch: runs without torch."""

from __future__ import annotations

import sys
from collections import OrderedDict, defaultdict
from pathlib import Path

import jax
import numpy as np

import pullback as pb

TOLERANCE = 1e-6
KEYS = ("gradient", "hvp", "forward")


def error(found, expected, scale: float | None = None) -> float:
    """The largest difference of two lists of arrays, relative to the largest number expected."""
    scale = scale or max(np.nanmax(np.abs(each)) for each in expected) or 1.0
    pairs = zip(found, expected, strict=True)
    return max(map(difference, *zip(*pairs))) / scale


def difference(found, expected) -> float:
    """The largest difference of two arrays, which may have NaNs in the same places."""
    both = np.isnan(found) & np.isnan(expected)
    return np.abs(np.where(both, 0, np.float64(found) - expected)).max()


def errors(path: Path) -> tuple[str, dict[str, list[float | str]]]:
    """The kind of a module, and the error of each derivative at each point, or what it raised."""
    arrays = np.load(path.with_suffix(".npz"))
    program = pb.load(path)
    parameters = OrderedDict(
        (key.removeprefix("parameter/"), arrays[key]) for key in arrays if "parameter/" in key
    )
    at: dict[str, dict[str, list]] = defaultdict(lambda: defaultdict(list))
    for key in arrays:
        if key.startswith("point/"):
            _, point, what, _ = key.split("/")
            at[point][what].append(arrays[key])
    found = defaultdict(list)
    for said in at.values():
        for key, leaves in derivatives(program, (parameters, *said["x"]), said["tangents"]).items():
            # A tangent is a sum of products, which may cancel.
            terms = zip(said["gradient"], said["tangents"])
            scale = sum(np.abs(g * t).sum() for g, t in terms) if key == "forward" else None
            if isinstance(leaves, pb.PullbackError):
                found[key].append(leaves.message if said[key] else "none")
            else:
                found[key].append(error(leaves, said[key], scale) if said[key] else "ours alone")
    return str(arrays["kind"]), found


def derivatives(program, args, tangents) -> dict[str, list | pb.PullbackError]:
    """The leaves of each derivative, or what it raised."""
    gradient = program.grad((0, 1))
    moving = jax.tree.unflatten(jax.tree.structure(args), tangents)
    runs = {
        "gradient": lambda: gradient(*args),
        "hvp": lambda: gradient.vjp()(*args, moving)[1],
        "forward": lambda: program.jvp()(*args, *moving)[1],
    }
    found = {}
    for key, run in runs.items():
        try:
            found[key] = jax.tree.leaves(run())
        except pb.PullbackError as refused:
            found[key] = refused
    return found


def main(folder: str, only: str = "") -> int:
    """Print the error of each module, then the largest of each kind as the table of the page."""
    assert "torch" not in sys.modules
    failed = 0
    worst: dict[str, dict[str, float]] = defaultdict(lambda: dict.fromkeys(KEYS, 0.0))
    counts: dict[str, int] = defaultdict(int)
    for path in sorted(Path(folder).glob(f"*{only}*.mlirbc")):
        try:
            kind, found = errors(path)
        except Exception as failure:
            kind, found = "?", {"gradient": [f"{type(failure).__name__}: {failure}"]}
        bad = [each for values in found.values() for each in values if not ok(each)]
        failed += bool(bad)
        cells = [" / ".join(map(shown, found.get(key, ["-"]))) for key in KEYS]
        print(f"| {path.stem.replace('_', ' ')} | {' | '.join(cells)} |{'  FAILED' if bad else ''}")
        counts[kind] += 1
        for key, values in found.items():
            worst[kind][key] = max(
                [worst[kind][key], *(v for v in values if not isinstance(v, str))]
            )
    for kind, largest in sorted(worst.items()):
        print(f"| {kind} | {counts[kind]} | {' | '.join(shown(largest[key]) for key in KEYS)} |")
    return failed


def ok(found: float | str) -> bool:
    return found in ("none", "ours alone") or (isinstance(found, float) and found <= TOLERANCE)


def shown(found: float | str) -> str:
    return f"{found:.0e}" if isinstance(found, float) else found


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
