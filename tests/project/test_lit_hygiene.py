"""Every check in a lit file is read by a RUN line: lit and FileCheck ignore the rest in silence."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.whole

LIT_TESTS = Path(__file__).resolve().parents[2] / "lit_tests"
FILES = sorted(
    path
    for path in LIT_TESTS.rglob("*")
    if path.suffix in {".mlir", ".py"}
    and path.name != "lit.cfg.py"
    and not {"Inputs", "Output"} & set(path.parts)
)

SUFFIXES = "NEXT|SAME|NOT|DAG|LABEL|EMPTY|COUNT-[0-9]+"
DIRECTIVE = re.compile(
    rf"(?://|#)\s*([A-Z][A-Z0-9_-]*?)(?:-(?:{SUFFIXES}))?:(?=\s|$)", re.MULTILINE
)
OTHER_DIRECTIVES = {"RUN", "REQUIRES", "UNSUPPORTED", "XFAIL", "END", "DEFINE", "TODO", "NOTE"}
PREFIX_OPTION = re.compile(r"--check-prefix(?:es)?[= ]([\w,-]+)")
# What a hurried hand writes for RUN and CHECK, or without the colon that makes it count.
MISSPELT = re.compile(
    r"(?://|#)\s*(RUNS?(?=\s+\S)(?!:)|RNU:|CEHCK|CHEC\b|CHEKC|CHCEK|CHECKS?\s|"
    rf"[A-Z]+-(?:{SUFFIXES})(?=\s))"
)
NAME = re.compile(r"[a-z0-9]+(?:[_-][a-z0-9]+)*")


def run_lines(text: str) -> list[str]:
    """The RUN lines, with those that end in a backslash joined."""
    joined = re.sub(r"\\\n(?://|#)\s*RUN:", " ", text)
    return re.findall(r"^(?://|#)\s*RUN:(.*)$", joined, re.MULTILINE)


def prefixes_read(text: str) -> set[str]:
    """The prefixes that some filecheck of the file is given."""
    prefixes: set[str] = set()
    for line in run_lines(text):
        for command in re.split(r"\||&&|;", line):
            if re.search(r"\bfilecheck\b", command):
                given = PREFIX_OPTION.findall(command)
                prefixes |= {name for group in given for name in group.split(",")} or {"CHECK"}
    return prefixes


def prefixes_written(text: str) -> set[str]:
    """The prefixes of the check lines in the file."""
    return set(DIRECTIVE.findall(text)) - OTHER_DIRECTIVES


def problems(path: Path, text: str) -> list[str]:
    """Everything about a lit file that would make it check less than it seems to."""
    found = []
    runs = run_lines(text)
    if not runs:
        found.append("it has no RUN line")
    read, written = prefixes_read(text), prefixes_written(text)
    found += [f"no RUN line reads the checks {name}" for name in sorted(written - read)]
    found += [f"a RUN line reads {name}, which has no check" for name in sorted(read - written)]
    found += [f"misspelt directive: {match[0]!r}" for match in MISSPELT.finditer(text)]
    if not read and not any(_checks_alone(run) for run in runs):
        found.append("its RUN lines check nothing")
    if not NAME.fullmatch(path.stem):
        found.append("its name is not lower-case words joined by - or _")
    if path.stem == "invalid":
        found += _invalid_file_problems(path, text)
    return found


def _checks_alone(run: str) -> bool:
    """Whether a RUN line can fail in a way that tells something, without filecheck."""
    return bool(
        re.search(r"--verify-diagnostics|\bnot\b|\bcmp\b|\bdiff\b|--check\b|--compare", run)
    )


def _invalid_file_problems(path: Path, text: str) -> list[str]:
    """Each part of `invalid.mlir` has a function named for the constraint that it breaks."""
    found = []
    for part in text.split("// -----"):
        labels = re.findall(r"expected-error\s*\S*\s*\{\{(\w+_c\d+):", part)
        names = re.findall(r"func\.func (?:public )?@(\w+)", part)
        if len(labels) != 1:
            found.append(f"a part with {len(labels)} expected errors: {names}")
        elif not any(name == labels[0] or name.startswith(f"{labels[0]}_") for name in names):
            found.append(f"no function is named after {labels[0]}: {names}")
    return found


def test_there_are_lit_files() -> None:
    assert len(FILES) > 10


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(LIT_TESTS)))
def test_lit_file(path: Path) -> None:
    assert problems(path, path.read_text()) == []


GOOD = "// RUN: pullback-opt %s | filecheck %s\n// CHECK-LABEL: @main\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("// CHECK: x\n", "it has no RUN line"),
        ("// RUN pullback-opt %s | filecheck %s\n// CHECK: x\n", "misspelt directive: '// RUN'"),
        (GOOD + "// JVP: y\n", "no RUN line reads the checks JVP"),
        (GOOD + "// JVP-NEXT: y\n", "no RUN line reads the checks JVP"),
        (GOOD + "// CEHCK: y\n", "misspelt directive: '// CEHCK'"),
        (GOOD + "// CHEC-K: y\n", "misspelt directive: '// CHEC'"),
        (GOOD + "// CHECK-NEXT y\n", "misspelt directive: '// CHECK-NEXT'"),
        (GOOD + "// CHECK y\n", "misspelt directive: '// CHECK '"),
        (
            "// RUN: pullback-opt %s | filecheck %s --check-prefix=JVP\n// CHECK: x\n",
            "a RUN line reads JVP, which has no check",
        ),
        ("// RUN: pullback-opt %s\n", "its RUN lines check nothing"),
    ],
)
def test_problem_is_found(text: str, words: str) -> None:
    assert words in problems(Path("name.mlir"), text)


def test_good_file_has_no_problem() -> None:
    assert problems(Path("name.mlir"), GOOD) == []
    prefixed = "# RUN: %python %s | filecheck %s --check-prefixes=A,B-C\n# A: x\n# B-C-SAME: y\n"
    assert problems(Path("name.py"), prefixed) == []


def test_bad_names_and_unlabelled_invalid_files_are_found() -> None:
    assert problems(Path("Bad Name.mlir"), GOOD) == [
        "its name is not lower-case words joined by - or _"
    ]
    text = "// RUN: pullback-opt %s --verify-diagnostics\n"
    text += "// expected-error @+1 {{linear_call_c3: x}}\nfunc.func @other\n"
    assert problems(Path("invalid.mlir"), text) == [
        "no function is named after linear_call_c3: ['other']"
    ]
