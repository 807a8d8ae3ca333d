"""Tell the page of passes: what each does, its options, and IR that lit tests, before and after."""

from __future__ import annotations

import dataclasses
import inspect
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from click.testing import CliRunner

from pullback.passes import PASSES
from pullback.passes.base import Pass, default_of, format_option, option_name
from pullback.passes.pipelines import PIPELINES, load_pass
from pullback_cli import main

LIT_TESTS = Path(__file__).parents[2] / "lit_tests" / "passes"

HEAD = """# Passes

Each pass of pullback, with its options, and what it makes of a module: the files are tests that
lit runs. In a shell a pass is a flag, `pullback opt FILE --jvp='wrt=0'`, or part of a pipeline,
`--pass-pipeline='builtin.module(jvp{wrt=0},cse)'`; in Python, `program.run_passes("cse")` and
`pullback.passes.manager.run_pipeline`. `pullback opt --list-passes` lists them, and those of MLIR
and StableHLO that can stand between them. [Write one](write_a_pass.md).
"""


def report() -> str:
    """Return the text of the page."""
    parts = [HEAD]
    for name in sorted(PASSES):
        parts += [f"## {name}\n", *_described(load_pass(name)), *_shown(name)]
    parts.append("## Pipelines\n")
    parts += [f"- `{name}` is `{stages}`." for name, stages in PIPELINES.items()]
    return "\n".join(parts) + "\n"


def _described(cls: type[Pass]) -> Iterator[str]:
    text, _, attributes = (inspect.getdoc(cls) or "").partition("\nAttributes:\n")
    yield f"{text}\n".replace("docs/dialect.md", "[dialect.md](dialect.md)")
    said = re.findall(r"^  (\w+): (.*(?:\n    .*)*)", attributes, re.M)
    words = {name: re.sub(r"\s+", " ", line) for name, line in said}
    fields = dataclasses.fields(cls)
    if fields:
        yield "| option | default | |\n|---|---|---|"
        for field in fields:
            default = default_of(field)
            is_given = default is not dataclasses.MISSING
            shown = f"`{format_option(default)}`" if is_given else "to be given"
            yield f"| `{option_name(field)}` | {shown} | {words[field.name]} |"
        yield ""


def _shown(name: str) -> Iterator[str]:
    """The example of a pass, the command of its RUN line, and what that prints."""
    file = LIT_TESTS / name / "example.mlir"
    text = file.read_text()
    command = re.match(r"// RUN: (?:not )?pullback-opt (.*?)(?: 2>&1)? \| filecheck", text)[1]
    before = re.sub(r"^// (RUN|CHECK).*\n", "", text, flags=re.M).strip()
    done = CliRunner().invoke(main, ["opt", *shlex.split(command.replace("%s", str(file)))])
    after = done.output.replace(str(file), "example.mlir").strip()
    yield f"```mlir title='example.mlir'\n{before}\n```\n"
    title = f"pullback opt {command.replace('%s', 'example.mlir')}".replace("'", '"')
    yield f"```{'mlir' if done.exit_code == 0 else 'text'} title='{title}'\n{after}\n```\n"
