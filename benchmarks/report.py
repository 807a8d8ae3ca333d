"""Run all benchmarks, write what they find, and compare two commits.

    python benchmarks/report.py run [--quick]     make bench, make bench-quick
    python benchmarks/report.py page              writes docs/benchmarks.md and its plots
    python benchmarks/report.py compare BASE      make bench-compare BASE=...
    python benchmarks/report.py run --only peers  make bench-peers, in an environment with the peer
    python benchmarks/report.py run --only gpu    make bench-gpu, where the default device is one

Each benchmark runs in a process of its own. A busy machine shows in the quartiles.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import jax
from rows import means

from pullback.program.progress import Progress

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results.json"
PAGE = ROOT / "docs" / "benchmarks.md"
PLOTS = ROOT / "docs" / "images"
BASE = ROOT / "out" / "bench-base"

SCRIPTS = {
    "run": "Run time of gradients",
    "peers": "Run time beside Enzyme-JAX",
    "gpu": "Run time of gradients on a GPU",
    "jacobians": "Run time of Jacobians",
    "loops": "Run time of loops",
    "derive": "Deriving gradients",
    "batches": "Deriving batches",
    "first_gradient": "First gradient",
    "dispatch": "Calls",
    "load": "Loading files",
    "save_memory": "Memory of saving and loading",
    "import_time": "Importing",
    "first_force": "First result without JAX",
    "check": "Checking rules",
    "costs": "What XLA counts",
    "budget": "Gradients within a memory budget",
}
"""The benchmarks, with the headings of their sections."""

FILES = {"gpu": "run"}
"""Names the script of a benchmark that is not called as it."""

APART = {"peers", "gpu"}
"""Names benchmarks that need more than every machine has: run on request, and kept until then."""

QUICK = {
    "run": ["--runs", "5"],
    "loops": ["--runs", "3", "--only", "1000 "],
    "derive": ["--runs", "2", "--only", "order 1, cold"],
    "dispatch": ["--runs", "50"],
    "load": ["--runs", "11", "--only", "mlp, 20 layers: load"],
    "import_time": ["--runs", "3"],
    "costs": ["--only", "norm"],
}
"""Those of three minutes, with their options."""

LEAST = 0.03
"""What moved by less is as before, however small the noise is."""


@click.group(help=(__doc__ or "").splitlines()[0])
def main() -> None:
    pass


@main.command()
@click.option("--quick", is_flag=True, help="a part of the rows, in three minutes")
@click.option("--only", multiple=True, type=click.Choice(list(SCRIPTS)), help="these benchmarks")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="a file, for the results")
def run(quick: bool, only: tuple[str, ...], output: Path | None) -> None:
    """Run benchmarks; write their rows, the machine and the versions as JSON."""
    output = output or (ROOT / "out" / "bench-quick.json" if quick else RESULTS)
    chosen = options_of(quick, only)
    before = json.loads(output.read_text()) if output.exists() else {"benchmarks": {}}
    known = {n: rows for n, rows in before["benchmarks"].items() if only or n in APART}
    found = {}
    with Progress() as progress:
        for done, (name, options) in enumerate(chosen.items()):
            progress.show(f"benchmark {name}", done, len(chosen))
            found[name] = rows_of(name, options)
    output.parent.mkdir(exist_ok=True)
    benchmarks = {name: (known | found)[name] for name in SCRIPTS if name in known | found}
    apart = before.pop("apart", {}) | {name: here() for name in chosen if name in APART}
    common = before if chosen.keys() <= APART else here()
    output.write_text(as_json({**common, "apart": apart, "benchmarks": benchmarks}))
    print(f"{sum(map(len, found.values()))} rows are in {output.relative_to(ROOT)}")


def options_of(quick: bool, only: tuple[str, ...]) -> dict[str, list[str]]:
    """Return the benchmarks that are asked for, with their options."""
    if "gpu" in only and jax.default_backend() != "gpu":
        raise click.ClickException(f"JAX's default device is no GPU: it is {jax.devices()[0]}")
    chosen = QUICK if quick else {name: [] for name in SCRIPTS}
    return {n: each for n, each in chosen.items() if (n in only if only else n not in APART)}


def as_json(results: dict[str, Any]) -> str:
    """Return results as JSON with one row a line, so that a change shows which rows moved."""
    rows: list[str] = []

    def mark(row: dict[str, Any]) -> str:
        rows.append(json.dumps(row))
        return f"row {len(rows) - 1}"

    marked = {name: list(map(mark, found)) for name, found in results["benchmarks"].items()}
    text = json.dumps({**results, "benchmarks": marked}, indent=1)
    return re.sub(r'"row (\d+)"', lambda found: rows[int(found[1])], text) + "\n"


def rows_of(name: str, options: list[str], source: Path = ROOT) -> list[dict[str, Any]]:
    """Return the rows of a benchmark, with pullback as it is in this folder."""
    path = os.pathsep.join(str(source / folder) for folder in ("compiler", "runtime"))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "rows.json")
        script = f"{ROOT}/benchmarks/{FILES.get(name, name)}.py"
        command = [sys.executable, script, *options, "--json", str(file)]
        subprocess.run(
            command, env={**os.environ, "PYTHONPATH": path}, check=True, stdout=sys.stderr
        )
        return list(json.loads(file.read_text()))


def here() -> dict[str, Any]:
    """Return what the numbers depend on: the commit, versions, and the machine."""
    git = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    commit = subprocess.run(git, capture_output=True, text=True).stdout.strip()
    names = ["pullback", "jax", "jaxlib", "numpy"]
    names += ["enzyme_ad"] * (importlib.util.find_spec("enzyme_ad") is not None)
    return {
        "commit": commit,
        "versions": {
            "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in names},
        },
        "device": jax.devices()[0].device_kind,
        "processor": processor(),
        "cores": os.cpu_count(),
    }


def processor() -> str:
    """Return the name of the processor, as Linux has it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


# -------------------------------------------------------------------------------- the page


@main.command()
def page() -> None:
    """Write docs/benchmarks.md, and its plots, of the results."""
    results = json.loads(RESULTS.read_text())
    PAGE.write_text(text_of(results))
    for name, rows in results["benchmarks"].items():
        plot(rows, SCRIPTS[name], PLOTS / f"benchmark_{name}.svg")


def text_of(results: dict[str, Any]) -> str:
    """Return the page of some results."""
    parts = [(ROOT / "benchmarks" / "README.md").read_text().rstrip(), *about(results)]
    for name, rows in results["benchmarks"].items():
        parts += [f"## {SCRIPTS[name]}", purpose(FILES.get(name, name))]
        if name in APART:
            parts += about(results["apart"][name])
        parts += table(rows)
        parts.append(f"![Ratios of the table.](images/benchmark_{name}.svg)")
    return "\n\n".join(parts) + "\n"


def about(results: dict[str, Any]) -> Iterator[str]:
    versions = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    yield (
        f"Measured at commit `{results['commit']}`, with {versions}, on {results['cores']} cores "
        f"of {results['processor'] or 'a processor without a name'} (JAX's device: "
        f"{results['device']})."
    )


def purpose(name: str) -> str:
    """Return what a benchmark says of itself, without its command."""
    text = (ROOT / "benchmarks" / f"{name}.py").read_text().split('"""')[1]
    first, _, *rest = text.strip().split("\n\n")
    return "\n\n".join([f"`benchmarks/{name}.py`: {first[0].lower()}{first[1:]}", *rest])


MANY = 40
"""In a table of more rows, those that hardly differ are left out."""


def table(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield a table of rows, and one of geometric means."""
    shown = [r for r in rows if len(rows) <= MANY or not 0.9 < r["ratio"] < 1.1]
    lines = ["| | ours | peer | ratio | quartiles |", "|---|---|---|---|---|"]
    for row in shown:
        aim = "" if row["aim"] is None else f" (aim {row['aim']})"
        lines.append(
            f"| {row['name']} | {row['ours']:.4g} {row['unit']} | {row['theirs']:.4g} "
            f"{row['unit']}, {row['peer']} | {row['ratio']:.2f}{aim} | "
            f"{row['low']:.2f} to {row['high']:.2f} |"
        )
    if len(shown) < len(rows):
        yield f"Of {len(rows)} rows, those {len(shown)} that differ by more than a tenth:"
    if shown:
        yield "\n".join(lines)
    if found := means(rows):
        head = ["| geometric mean | ratio |", "|---|---|"]
        yield "\n".join(head + [f"| {family} | {mean:.2f} |" for family, mean in found.items()])


def plot(rows: list[dict[str, Any]], title: str, path: Path) -> None:
    """Draw the ratios and their quartiles, one row a line, or all of them in order if many."""
    from matplotlib import pyplot, ticker

    # The same file for the same numbers, with text that can be searched.
    pyplot.rcParams.update({"svg.hashsalt": "benchmarks", "svg.fonttype": "none"})
    many = len(rows) > MANY
    rows = sorted(rows, key=lambda row: row["ratio"]) if many else rows[::-1]
    figure, axes = pyplot.subplots(figsize=(8, 4 if many else 1.2 + 0.22 * len(rows)))
    ratios = [row["ratio"] for row in rows]
    spread = [
        [max(0.0, row["ratio"] - row["low"]) for row in rows],
        [max(0.0, row["high"] - row["ratio"]) for row in rows],
    ]
    if many:
        axes.set_yscale("log", base=2)
        axes.plot(range(len(rows)), ratios, ".", color="tab:blue")
        axes.set(ylabel="ours / peer", xlabel="rows, by their ratio")
        axes.axhline(1.0, color="gray", linewidth=1)
    else:
        axes.errorbar(ratios, range(len(rows)), xerr=spread, fmt="o", color="tab:blue")
        axes.set_yticks(range(len(rows)), [row["name"] for row in rows])
        axes.set_xscale("log", base=2)
        ends = [row["low"] for row in rows], [row["high"] for row in rows]
        axes.set(xlabel="ours / peer", xlim=(max(0.01, min(0.4, *ends[0])), max(2.5, *ends[1])))
        axes.axvline(1.0, color="gray", linewidth=1)
    scale = axes.yaxis if many else axes.xaxis
    scale.set_major_locator(ticker.LogLocator(base=2))
    scale.set_major_formatter("{x:g}")
    scale.set_minor_locator(ticker.NullLocator())
    axes.set_title(title)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


# ---------------------------------------------------------------------------- two commits


@main.command()
@click.argument("base")
@click.option("--quick", is_flag=True, help="a part of the rows, in six minutes")
@click.option("--only", multiple=True, type=click.Choice(list(SCRIPTS)), help="these benchmarks")
def compare(base: str, quick: bool, only: tuple[str, ...]) -> None:
    """Run the benchmarks with pullback as it is, and as it was at BASE, in turn, twice.

    Rows are marked whose ratio to the peer moved by more than the quartiles of both.
    """
    check_out(base)
    for name, options in options_of(quick, only).items():
        print(f"== {name}")
        found: list[list[dict[str, Any]]] = [[], []]
        for _ in range(2):
            for side, source in enumerate((BASE, ROOT)):
                found[side] += rows_of(name, options, source)
        before, after = map(by_name, found)
        for row in (each for each in before if each in after):
            print(moved(row, before[row], after[row]))


def check_out(base: str) -> None:
    """Make a work tree of a commit."""
    git = ["git", "-C", str(ROOT), "worktree"]
    subprocess.run([*git, "prune"], check=True)
    if BASE.exists():
        subprocess.run([*git, "remove", "--force", str(BASE)], check=True)
    subprocess.run([*git, "add", "--quiet", "--detach", str(BASE), base], check=True)


def by_name(rows: list[dict[str, Any]]) -> dict[str, tuple[float, float, float]]:
    """Return the least quartile, the mean ratio and the greatest quartile of each row."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["name"], []).append(row)
    return {
        name: (
            min(row["low"] for row in same),
            sum(row["ratio"] for row in same) / len(same),
            max(row["high"] for row in same),
        )
        for name, same in found.items()
    }


def moved(name: str, before: tuple[float, float, float], after: tuple[float, float, float]) -> str:
    """Return a line that tells how a row moved."""
    change = after[1] / before[1]
    beyond = after[0] > before[2] or after[2] < before[0]
    mark = "" if not beyond or abs(change - 1) < LEAST else "SLOWER" if change > 1 else "faster"
    return f"{name:52} {before[1]:8.2f} {after[1]:8.2f} {change:8.2f} {mark}".rstrip()


if __name__ == "__main__":
    main()
