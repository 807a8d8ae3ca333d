"""Show the stages of a program in Google's Model Explorer, with figures and lines of ours."""

from __future__ import annotations

import collections
import importlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pullback.errors import UsageError
from pullback.tools.show import note
from pullback.tools.view.listing import Listing
from pullback.tools.view.stages import Stages
from pullback_runtime._install import requirement

KNOWN = "ai-edge-model-explorer==0.1.34"
CONVERT = (
    "import sys, ai_edge_model_explorer_adapter as adapter; "
    "print(adapter.ConvertMlirToJson(adapter.VisualizeConfig(), sys.argv[1]))"
)
DEEPEST = 2
"""Limits the regions that an op is in which Model Explorer shows; that of the function counts."""

GRADIENT = [{"stop": 0, "bgColor": "#ffffff"}, {"stop": 1, "bgColor": "#ff9d5c"}]


def explore(stages: Stages) -> None:
    """Serve the stages by Model Explorer, in a browser, until it is interrupted.

    A stage that it cannot read is left out with a note.

    Raises:
      UsageError: Model Explorer is not installed, or cannot read any of the stages.
    """
    explorer = _imported()
    program = stages.listings[0]
    with tempfile.TemporaryDirectory() as folder:
        config = explorer.config()
        for listing in stages.listings:
            path = Path(folder, f"{listing.stage}.mlir")
            path.write_text("\n".join(listing.rows), encoding="utf-8")
            graphs = _graphs(path)
            if graphs is None:
                continue
            _check_nodes(graphs, listing)
            config.add_model_from_path(str(path))
            for name, data in node_data(listing, program).items():
                config.add_node_data(name, json.dumps(data), model_name=path.name)
        if not config.model_sources:
            raise UsageError(
                "Model Explorer cannot read the program", do="show it as a page: without --explorer"
            )
        explorer.visualize_from_config(config)


def _imported() -> Any:
    try:
        return importlib.import_module("model_explorer")
    except ModuleNotFoundError as error:
        raise UsageError(
            "--explorer wants Model Explorer, which is not installed",
            do=f"pip install {requirement('pullback', 'explorer')}",
        ) from error


def _graphs(path: Path) -> Any:
    """Return the graphs that Model Explorer makes of a file; None, with a note, if it fails.

    Its converter is a library of C++ that some modules make crash, so it runs in another process.
    """
    ran = subprocess.run([sys.executable, "-c", CONVERT, path], capture_output=True, check=False)
    if ran.returncode == 0:
        (collection,) = json.loads(ran.stdout)
        return collection["subgraphs"]
    lines = ran.stderr.decode(errors="replace").strip().splitlines()
    note(
        f"Model Explorer cannot read the stage {path.stem}: {lines[-1] if lines else 'it crashed'}"
    )
    return None


def _check_nodes(graphs: Any, listing: Listing) -> None:
    """Raise UsageError if Model Explorer has another op in the place of one of ours."""
    shown = {
        (graph["id"], node["id"]): node["label"] for graph in graphs for node in graph["nodes"]
    }
    for number, place in nodes(listing).items():
        name, label = listing.ops[number].name, shown.get(place, "nothing")
        if label != name and not name.endswith(".return"):
            raise UsageError(
                f"Model Explorer has {label} where the module has {name}: this version of it "
                "numbers ops in another way",
                where=f"node {place[1]} of @{place[0]}",
                do=f"pip install '{KNOWN}'",
            )


def nodes(listing: Listing) -> dict[int, tuple[str, str]]:
    """Return the graph and the node of each op that Model Explorer shows.

    It has a graph for each function, and numbers its ops in the order in which they stand, with the
    ends of blocks; what stands in a region of a region is not shown.
    """
    counts: dict[str, int] = collections.defaultdict(int)
    found = {}
    for number, op in enumerate(listing.ops):
        if 1 <= op.depth <= DEEPEST:
            found[number] = op.function, str(counts[op.function])
            counts[op.function] += 1
    return found


def node_data(listing: Listing, program: Listing) -> dict[str, dict[str, Any]]:
    """Return Model Explorer's node data: by their name, by graph, and by node.

    Args:
      listing: of the module that is shown.
      program: the listing of the first stage.
    """
    found: dict[str, dict[str, Any]] = {}
    lines = listing.lines(program)
    rules = dict(_rules(listing))
    for number, (graph, node) in nodes(listing).items():
        op = listing.ops[number]
        values: dict[str, Any] = {
            "bytes of all runs": op.bytes * op.runs,
            "flops of all runs": op.flops * op.runs,
            "rule": rules.get(number, ""),
            "line": next((f"{Path(file).name}:{n}" for file, n, _ in lines[number]), ""),
        }
        for name, value in values.items():
            if value:
                of_graph = found.setdefault(name, {}).setdefault(graph, _empty(value))
                of_graph["results"][node] = {"value": value}
    return found


def _empty(value: Any) -> dict[str, Any]:
    return {"results": {}} if isinstance(value, str) else {"results": {}, "gradient": GRADIENT}


def _rules(listing: Listing) -> Iterator[tuple[int, str]]:
    """Yield the ops that have a rule or are of one, with what this is."""
    of_function: dict[str, str] = {}
    for number, op in enumerate(listing.ops):
        if op.rules:
            yield number, f"has {', '.join(op.rules)}"
            of_function |= {f: f"{name} of {op.callee}" for name, f in op.rules.items()}
    for number, op in enumerate(listing.ops):
        if op.function in of_function and not op.rules:
            yield number, of_function[op.function]
