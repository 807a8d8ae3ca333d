"""Build a release and try it as a stranger would: away from the checkout, in fresh environments.

    python -m tests.release DIST PYTHON...

Writes sdists and wheels of both distributions to DIST, from the tracked files alone. Each PYTHON
then gets an environment with the wheels, in which README's example, the commands and the types are
tried; and one with the runtime alone, which loads the example's file and has no JAX.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
TYPED = ROOT / "tests/typing"
WITHOUT_JAX = """
import importlib.util, numpy, pullback_runtime
assert importlib.util.find_spec("jax") is None
energy = pullback_runtime.load("energy.mlirbc", engine="pjrt")
print(energy(numpy.array([3.0, 0.0, 4.0], numpy.float32)))
print(energy.describe())
"""
PJRT_PLUGIN = "lammps-jax-pjrt-cpu"


def run(*command: str | Path, cwd: Path, check: bool = True) -> str:
    """Return what a command prints, without anything in its environment that names the checkout."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        env=kept | {"JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=False,
    )
    printed = done.stdout + done.stderr
    if check and done.returncode:
        sys.exit(f"failed: {' '.join(map(str, command))}\n{printed}")
    return done.stdout if check else printed


def expect(text: str, pattern: str) -> None:
    """End with both unless the text has the pattern."""
    if not re.search(pattern, text):
        sys.exit(f"expected {pattern!r} in:\n{text}")


def build(folder: Path, dist: Path) -> None:
    """Build both distributions in a copy of the tracked files."""
    source = folder / "source"
    files = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT)
    for name in filter(None, files.split("\0")):
        if (ROOT / name).is_file():
            target = source / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((ROOT / name).read_bytes())
    for part in (source, source / "runtime"):
        run(sys.executable, "-m", "build", "--outdir", dist, part, cwd=folder)
    run(sys.executable, "-m", "twine", "check", "--strict", *dist.iterdir(), cwd=folder)
    for wheel in dist.glob("*.whl"):
        check_contents(wheel, folder)


def check_contents(wheel: Path, folder: Path) -> None:
    """End if a wheel has anything but its packages, or a path of this machine."""
    packages = {"pullback", "pullback_cli", "pullback_pytest"}
    if wheel.name.startswith("pullback_runtime"):
        packages = {"pullback_runtime"}
    archive = zipfile.ZipFile(wheel)
    for name in archive.namelist():
        top = name.split("/")[0]
        if top not in packages and not top.endswith(".dist-info"):
            sys.exit(f"{wheel.name} has {name}")
        for path in (ROOT, folder, Path.home()):
            if str(path).encode() in archive.read(name):
                sys.exit(f"{name} of {wheel.name} names {path}")


def environment(python: str, folder: Path, *installed: str | Path) -> Path:
    """Return the folder of commands of a fresh environment in which these are installed."""
    run(python, "-m", "venv", folder, cwd=folder.parent)
    commands = folder / ("Scripts" if os.name == "nt" else "bin")
    run(commands / "python", "-m", "pip", "install", "--quiet", *installed, cwd=folder)
    return commands


def try_whole(python: str, folder: Path, wheels: list[Path]) -> None:
    """Run README's example, the commands and the type checker with both wheels installed."""
    commands = environment(python, folder / "whole", *wheels, "mypy")
    readme = (ROOT / "README.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", readme, re.S)
    (folder / "example.py").write_text(example)
    printed = run(commands / "python", "example.py", cwd=folder)
    assert printed.splitlines() == re.findall(r"^print\(.*  # (.*)$", example, re.M), printed
    expect(
        run(commands / "pullback", "--version", cwd=folder), r"^pullback [\d.]+, with jax [\d.]+"
    )
    expect(run(commands / "pullback-opt", "--list-passes", cwd=folder), r"(?m)^ +vjp\b")
    check_types(commands / "python", folder)


def check_types(python: Path, folder: Path) -> None:
    """End unless mypy accepts the right program, and finds in the wrong one what its lines say."""
    strict = python, "-m", "mypy", "--strict"
    run(*strict, TYPED / "right.py", cwd=folder)
    found = run(*strict, TYPED / "wrong.py", cwd=folder, check=False)
    if mistakes(found) != marked():
        sys.exit(f"expected {marked()} in:\n{found}")


def mistakes(printed: str) -> dict[int, str]:
    """Return the kind of error by line that mypy printed of the wrong program."""
    found = re.findall(r"wrong\.py:(\d+): error: .*\[(.+)\]", printed)
    return {int(line): kind for line, kind in found}


def marked() -> dict[int, str]:
    """Return the kind of error by line that the wrong program says itself."""
    lines = enumerate((TYPED / "wrong.py").read_text().splitlines(), 1)
    return {i: line.partition("  # ")[2] for i, line in lines if "  # " in line}


def try_runtime(python: str, folder: Path, wheel: Path) -> None:
    """Load the file of the example with the runtime's wheel, a plug-in, and no JAX."""
    commands = environment(python, folder / "alone", f"{wheel}[pjrt]", "ml_dtypes")
    pip = commands / "python", "-m", "pip", "install", "--quiet", "--no-deps", PJRT_PLUGIN
    run(*pip, cwd=folder)
    expect(run(commands / "python", "-c", WITHOUT_JAX, cwd=folder), r"^10\.0")


def main(dist: str, *pythons: str) -> None:
    out = Path(dist).resolve()
    out.mkdir(parents=True, exist_ok=True)
    for old in out.iterdir():
        old.unlink()
    with tempfile.TemporaryDirectory() as name:
        build(Path(name), out)
    print("built", *sorted(path.name for path in out.iterdir()), sep="\n  ")
    (runtime,) = out.glob("pullback_runtime-*.whl")
    (whole,) = out.glob("pullback-*.whl")
    by_version = {run(python, "--version", cwd=ROOT).strip(): python for python in pythons}
    for version, python in by_version.items():
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            try_whole(python, folder, [runtime, whole])
            try_runtime(python, folder, runtime)
        print(f"{version}: example, commands, types, and a load without JAX")


if __name__ == "__main__":
    main(*sys.argv[1:])
