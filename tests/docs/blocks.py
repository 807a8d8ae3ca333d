"""Run the blocks of a page that need other libraries: those of `py`, which the tests leave out.

    python -m tests.docs.blocks exchange.md "ONNX"

The second argument is the heading of a section, without which the whole page is run. A block of
`sh` is run by the shell.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

import pullback as pb

DOCS = Path(__file__).parents[2] / "docs"
FILE = re.compile(r"# (\w+\.\w+)\n")
"""The first line of a block that is a file."""


def section_of(page: str, heading: str) -> str:
    """Return what is between a heading of the second level and the next one."""
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", page, re.M | re.S)
    if found is None:
        raise SystemExit(f"no section {heading!r}")
    return found[1]


def run_blocks(name: str, heading: str | None = None, languages: str = "py") -> int:
    """Run blocks in the current folder; return how many print something else than the page shows.

    What a block prints is in a block of `output` or `text` after it.

    Args:
      languages: a regular expression.
    """
    page = (DOCS / name).read_text()
    text = page if heading is None else section_of(page, heading)
    output = r"(?:\n\n```(?:text|output)\n(.*?)```)?"
    found = re.findall(rf"```({languages})\n(.*?)```{output}", text, re.S)
    if not found:
        raise SystemExit(f"no blocks of {languages} in {name}")
    names: dict[str, Any] = {"jax": jax, "jnp": jnp, "pb": pb}
    wrong = 0
    for language, code, shown in found:
        if file := FILE.match(code):
            Path(file[1]).write_text(code)
            continue
        if language == "sh":
            printed = subprocess.run(
                ["sh", "-ec", code], check=True, stdout=subprocess.PIPE, text=True
            ).stdout
        else:
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(compile(code, "a page of docs", "exec"), names)
            printed = out.getvalue()
        if printed != shown:
            print(f"{code}\nprints\n{printed}\ninstead of\n{shown}")
            wrong += 1
    print(f"{len(found) - wrong} of {len(found)} blocks of {name} print what it shows")
    return wrong


def main(name: str, heading: str | None = None) -> int:
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            return run_blocks(name, heading, "py|sh")
        finally:
            os.chdir("/")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
