"""Make notebooks of pages, and run them: `python docs/site/notebooks.py FOLDER`.

The blocks of a page are the cells of its notebook, and their output in this run stands in the place
of what the page shows.
"""

from __future__ import annotations

import re
import sys
import tempfile
import tomllib
from pathlib import Path

import jupytext
import nbformat
from jupyter_client import AsyncKernelManager
from nbclient import NotebookClient

DOCS = Path(__file__).parents[1]
PAGES = ["tutorial", "find_nan", "memory"]
SOURCE = tomllib.loads((DOCS.parent / "pyproject.toml").read_text())["project"]["urls"]["Source"]
COLAB = SOURCE.replace("github.com", "colab.research.google.com/github") + "/blob/gh-pages/latest"
INSTALL = f"""\
try:
    import pullback
except ImportError:
    %pip install -q "git+{SOURCE}"\
"""

SHOWN = re.compile(r"(?<=```\n)\n```(?:text|mlir)\n.*?```\n", re.S)
CHANGES = [
    (re.compile(r"^```python\n(# (\w+\.py)\n)", re.M), r"```python\n%%writefile \2\n\1"),
    (re.compile(r"^```sh\n(?=pullback )", re.M), "```python\n%%sh --no-raise-error\n"),
    # A notebook shows programs, tables and reports folded; `print` would write their text.
    (re.compile(r"^print\((\w+|pb\.find_nan.*)(\.bytes)?\)$", re.M), r"display(\1)"),
    (re.compile(r"\]\((\w+)\.md(?=[)#])"), r"](../\1.html"),
]


def notebook(page: str) -> nbformat.NotebookNode:
    """Return the notebook of a page, not run."""
    text = SHOWN.sub("", (DOCS / f"{page}.md").read_text())
    for pattern, change in CHANGES:
        text = pattern.sub(change, text)
    made = jupytext.reads(text, fmt="md")
    made.cells.insert(0, nbformat.v4.new_code_cell(INSTALL))
    made.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
    for i, cell in enumerate(made.cells):
        cell["id"] = f"{page}-{i}"  # the same each time
    return made


def main(folder: Path) -> None:
    """Run each notebook in a folder of its own, and write it; raise if a cell raises."""
    for page in PAGES:
        made = notebook(page)
        with tempfile.TemporaryDirectory() as place:
            kernel = AsyncKernelManager(transport="ipc", ip=f"{place}/kernel")
            resources = {"metadata": {"path": place}}
            NotebookClient(made, km=kernel, resources=resources, timeout=300).execute(
                cleanup_kc=True
            )
        shown = [out for cell in made.cells for out in cell.get("outputs", ())]
        if not any("text/html" in out.get("data", ()) for out in shown):
            raise AssertionError(f"{page}: no cell shows a program, a table or a report")
        nbformat.write(made, folder / f"{page}.ipynb")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
