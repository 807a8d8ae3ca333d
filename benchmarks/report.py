"""Run all benchmarks, write what they find, and compare two commits.

    python benchmarks/report.py run [--quick]     make bench, make bench-quick
    python benchmarks/report.py page              writes docs/benchmarks.md and its plots
    python benchmarks/report.py compare BASE      make bench-compare BASE=...
    python benchmarks/report.py run --only peers  make bench-peers, in an environment with the peer
    python benchmarks/report.py run --only gpu    make bench-gpu, where the default device is one
    python benchmarks/report.py run --only taylor make bench-taylor, in an environment with folx
    python benchmarks/report.py run --only sparse make bench-sparse, in an environment with asdex

Each benchmark runs in a process of its own. A busy machine shows in the quartiles.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import math
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import jax
from rows import means

from pullback.program.progress import Progress

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results.json"
HISTORY = ROOT / "benchmarks" / "history.jsonl"
TEMPLATE = ROOT / "benchmarks" / "page.md"
PAGE = ROOT / "docs" / "benchmarks.md"
PLOTS = ROOT / "docs" / "images"
BASE = ROOT / "out" / "bench-base"


class Section(NamedTuple):
    """A benchmark on the page, as a table.

    Attributes:
      title: its heading.
      names: a pattern of the names of rows, with two groups: the row of the table, and the column.
        What does not match is not in the table.
      column: that of names without the second group; by default, beside which peer they are.
    """

    title: str
    names: str = r"(.+?)(?:: (.+))?"
    column: str = ""


_COMMA = r"(.+), (.+)"
SCRIPTS = {
    "run": Section("Run time of gradients", column="run time"),
    "peers": Section("Run time beside Enzyme-JAX", r"(.+?)(?:: (beside JAX))?"),
    "gpu": Section("Run time of gradients on a GPU", column="run time"),
    "jacobians": Section("Run time of Jacobians", _COMMA),
    "taylor": Section("Taylor mode"),
    "sparse": Section("Sparse derivatives", column="beside dense"),
    "loops": Section("Run time of loops", _COMMA),
    "derive": Section("Deriving gradients", r"(.+): (?:JAX's own rules, )?(order .*)"),
    "batches": Section("Deriving batches", _COMMA),
    "first_gradient": Section("First gradient", column="grad"),
    "dispatch": Section("Calls", _COMMA),
    "load": Section("Loading files"),
    "save_memory": Section("Memory of saving and loading"),
    "import_time": Section("Importing"),
    "first_force": Section("First result without JAX"),
    "check": Section("Checking rules"),
    "costs": Section("What XLA counts", r"(.+?)(?:: (temporaries))?", "bytes accessed"),
    "budget": Section("Gradients within a memory budget"),
}
"""The benchmarks, with their tables and the titles of their plots."""

FILES = {"gpu": "run"}
"""Names the script of a benchmark that is not called as it."""

APART = {"peers", "gpu", "taylor", "sparse"}
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
    results = {**common, "apart": apart, "benchmarks": benchmarks}
    output.write_text(as_json(results))
    if output == RESULTS and not only:
        remember(results)
    print(f"{sum(map(len, found.values()))} rows are in {output.relative_to(ROOT)}")


def remember(results: dict[str, Any]) -> None:
    """Write the ratios of all rows as the line of this commit in the history."""
    kept = [line for line in history() if line["commit"] != results["commit"]]
    ratios = {
        name: {row["name"]: row["ratio"] for row in rows if name not in APART}
        for name, rows in results["benchmarks"].items()
    }
    about = {"commit": results["commit"], "jax": results["versions"]["jax"]}
    lines = [*kept, {**about, "ratios": ratios}]
    HISTORY.write_text("".join(json.dumps(line) + "\n" for line in lines))


def history() -> list[dict[str, Any]]:
    """Return what is kept of each commit that was measured, the oldest first."""
    lines = HISTORY.read_text().splitlines() if HISTORY.exists() else []
    return [json.loads(line) for line in lines]


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
    names += [peer for peer in ("enzyme_ad", "folx") if importlib.util.find_spec(peer)]
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
        plot(rows, SCRIPTS[name].title, PLOTS / f"benchmark_{name}.svg")
    plot_history(history(), PLOTS / "benchmark_history.svg")


def text_of(results: dict[str, Any]) -> str:
    """Return the page of some results: the template, with figures and tables in their places."""
    found = results["benchmarks"]
    by_name = {name: {row["name"]: row for row in rows} for name, rows in found.items()}
    figures = {
        key: {name: {n: show(row) for n, row in rows.items()} for name, rows in by_name.items()}
        for key, show in FIGURES.items()
    }
    return TEMPLATE.read_text().format(
        **figures,
        about=about(results),
        mean={name: shown_means(rows) for name, rows in found.items()},
        more={name: sum(map(is_more, rows)) for name, rows in found.items()},
        less={name: sum(row["ratio"] < 0.9 for row in rows) for name, rows in found.items()},
        rows={name: len(rows) for name, rows in found.items()},
        table={name: "\n\n".join(parts(name, results)) for name in SCRIPTS},
    )


def about(results: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    return (
        f"Measured at commit `{results['commit']}`, with {versions}, on {results['cores']} cores "
        f"of {results['processor'] or 'a processor without a name'} (JAX's device: "
        f"{results['device']})."
    )


MANY = 40
"""Of more rows of a table, those are shown that take over a tenth more than the peer."""

UNITS = {"us": ("µs", 1), "kB": ("MB", 1e-3), "M": ("million", 1)}
"""Units of rows that the page calls otherwise, and how many of its own each is."""


def parts(name: str, results: dict[str, Any]) -> Iterator[str]:
    """Yield the table of a benchmark, its means, what it leaves out and is slower, and its plot."""
    if name not in results["benchmarks"]:
        yield f"No figures are recorded: `make bench-{name}` takes them."
        return
    if name in APART:
        yield about(results["apart"][name])
    section, rows = SCRIPTS[name], results["benchmarks"][name]
    cells: dict[str, dict[str, str]] = {}
    worse: set[str] = set()
    left = []
    for row in rows:
        if match := re.fullmatch(section.names, row["name"]):
            label, column = match[1], match[2] or section.column or f"beside {row['peer']}"
            number, unit = amount(row, "ours")
            mark = "**" if is_more(row) else ""
            cell = f"{number}, {mark}{ratio(row)}{mark}"
            cells.setdefault(label, {})[f"{column}, {unit}"] = cell
            if is_more(row):
                worse.add(label)
        elif is_more(row):
            left.append(f"{row['name']} {ratio(row)}")
    if len(cells) > MANY:
        cells = {label: cells[label] for label in cells if label in worse}
    columns = list(dict.fromkeys(column for each in cells.values() for column in each))
    lines = [f"| | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for label, each in cells.items():
        lines.append(f"| {label} | {' | '.join(each.get(column, '') for column in columns)} |")
    yield "\n".join(lines)
    if left:
        yield f"Not in the table, and over a tenth more: {'; '.join(left)}."
    if found := shown_means(rows):
        yield f"Geometric means: {'; '.join(f'{f} {mean}' for f, mean in found.items())}."
    yield f"![{section.title}](images/benchmark_{name}.svg)"


def shown_means(rows: list[dict[str, Any]]) -> dict[str, str]:
    return {family: f"{mean:.2f}" for family, mean in means(rows).items()}


def is_more(row: dict[str, Any]) -> bool:
    return bool(row["ratio"] > 1.1)


def ratio(row: dict[str, Any]) -> str:
    return f"{row['ratio']:.2f}" if row["ratio"] < 10 else f"{row['ratio']:.3g}"


FIGURES = {
    "ours": lambda row: " ".join(amount(row, "ours")),
    "theirs": lambda row: " ".join(amount(row, "theirs")),
    "ratio": ratio,
}
"""What the template can ask of a row, `{ours[run][attention]}`."""


def amount(row: dict[str, Any], side: str) -> tuple[str, str]:
    """Return three digits of the figure of one side, and its unit."""
    unit, factor = UNITS.get(row["unit"], (row["unit"], 1))
    number = row[side] * factor
    return f"{number:.3g}" if number < 999.5 else f"{number:.0f}", unit


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


def plot_history(lines: list[dict[str, Any]], path: Path) -> None:
    """Draw the ratio of each row by commit, one panel a benchmark, and their geometric mean."""
    from matplotlib import pyplot, ticker

    pyplot.rcParams.update({"svg.hashsalt": "benchmarks", "svg.fonttype": "none"})
    names = [name for name in SCRIPTS if any(line["ratios"].get(name) for line in lines)]
    figure, grid = pyplot.subplots(-(-len(names) // 3), 3, figsize=(9, 1.9 * -(-len(names) // 3)))
    for axes in grid.flat[len(names) :]:
        axes.set_visible(False)
    commits = [f"{line['commit'].removesuffix('-dirty')[:7]}" for line in lines]
    for name, axes in zip(names, grid.flat, strict=False):
        of_commit = [line["ratios"].get(name, {}) for line in lines]
        for row in dict.fromkeys(row for each in of_commit for row in each):
            ratios = [each.get(row, math.nan) or math.nan for each in of_commit]
            axes.plot(commits, ratios, color="tab:blue", alpha=0.2, linewidth=0.8)
        logs = [[math.log(ratio) for ratio in each.values() if ratio > 0] for each in of_commit]
        mean = [math.exp(sum(each) / len(each)) if each else math.nan for each in logs]
        axes.plot(commits, mean, ".-", color="black")
        axes.axhline(1.0, color="gray", linewidth=1)
        axes.set_yscale("log", base=2)
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_locator(ticker.NullLocator())
        axes.tick_params(axis="x", rotation=60, labelsize=6)
        axes.tick_params(axis="y", labelsize=7)
        axes.set_title(SCRIPTS[name].title, fontsize=8)
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
