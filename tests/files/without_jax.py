"""What `runtime_alone` checks in an environment that has the runtime and no JAX.

python -I without_jax.py FOLDER [PLUGIN OTHER_PLUGIN]
"""

import functools
import importlib.util
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import pullback_runtime as runtime
from pullback_runtime._install import requirement

NEEDS_LAPACK = "solver"


def stored(path: Path, prefix: str) -> list[np.ndarray]:
    with np.load(path.with_suffix(".npz")) as arrays:
        return [arrays[name] for name in arrays if name.startswith(prefix)]


def agree(found: list[Any], expected: list[Any]) -> None:
    assert len(found) == len(expected)
    for each, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(each, wanted, rtol=1e-5, atol=1e-6)


def says(call: Callable[[], Any], *words: str, kind: str = "PullbackRuntimeError") -> None:
    """Check the words of the error that a call raises, and its class."""
    raised = None
    try:
        call()
    except runtime.PullbackRuntimeError as error:
        raised = error
    assert kind in {each.__name__ for each in type(raised).__mro__}, (raised, words)
    for each in words:
        assert each in str(raised), str(raised)


def programs(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.glob("*.mlirbc")):
        if path.stem not in (NEEDS_LAPACK, "types", "entries"):
            yield path


def bare(folder: Path) -> None:
    """What holds where nothing is installed that could run a program."""
    path = folder / "recurrent.mlirbc"
    program = runtime.load(path)
    assert "argument    weights: float32[3]" in program.describe()
    assert "rule        pullback.custom_jvp_call @softplus: jvp" in program.describe()
    missing = "EngineNotFoundError"
    says(lambda: program(np.ones(3), np.ones(5)), "JAX is not installed", kind=missing)
    for name, package in (("jax", "jax"), ("pjrt", "pypjrt"), ("iree", "iree.runtime")):
        if importlib.util.find_spec(package.partition(".")[0]) is None:
            says(
                lambda name=name: runtime.load(path, engine=name),
                f"engine '{name}' needs the package {package}, which is not installed",
                f"pip install {requirement('pullback-runtime', name)}",
                kind=missing,
            )
    says(lambda: runtime.compile, "pullback_runtime.compile needs JAX", kind=missing)
    says(lambda: runtime.load(folder / "text.mlir"), "only JAX can read others")
    assert "jax" not in sys.modules
    print("without an engine: signatures and errors")


def engine(folder: Path, name: str, **options: Any) -> None:
    """What holds for each engine."""
    for path in programs(folder):
        found = runtime.load(path, engine=name, **options).flat(*stored(path, "argument"))
        agree(found, stored(path, "result"))
    recurrent = folder / "recurrent.mlirbc"
    arguments = stored(recurrent, "argument")
    entries = runtime.load(folder / "entries.mlirbc", engine=name, **options).entries
    gradient = folder / "gradient.mlirbc"
    agree(entries["energy"].flat(*arguments), stored(recurrent, "result"))
    agree(entries["forces"].flat(*stored(gradient, "argument")), stored(gradient, "result"))
    program = runtime.load(recurrent, engine=name, **options)
    says(
        lambda: program(np.ones(3), np.ones(4)),
        "argument 1 (inputs) has the wrong shape: expected float32[5], got float64[4] of NumPy",
        kind="ArgumentError",
    )
    says(lambda: program(np.ones(3)), "2 positional arguments are expected, and 1 were given")
    solver = folder / "solver.mlirbc"
    lapack = runtime.load(solver, engine=name, **options)
    says(lambda: lapack.flat(*stored(solver, "argument")), "lapack_", kind="CompileError")
    says(lambda: runtime.load(recurrent, engine=name, **{**options, "backend": "tpu"}), "'tpu'")
    executable = folder / f"{name}.exe"
    runtime.save_executable(recurrent, executable, engine=name, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        agree(
            runtime.load_executable(executable, **options).flat(*arguments),
            stored(recurrent, "result"),
        )
    says(lambda: runtime.load(executable), "this is machine code", "load_executable")
    print(f"{name}: the numbers of JAX, from programs, a gradient and machine code")


def types(folder: Path, **options: Any) -> None:
    """Arrays of each type go in and come out."""
    import ml_dtypes

    found = runtime.load(folder / "types.mlirbc", **options)(
        np.ones(3, ml_dtypes.bfloat16),
        np.linspace(0, 1, 4),
        np.arange(6, dtype=np.int8).reshape(2, 3).T.copy().T,  # not contiguous
        np.array([True, False]),
        1 + 2j,
        np.zeros((0, 2), np.float32),
    )
    assert found["half"].dtype == ml_dtypes.bfloat16
    assert np.array_equal(found["half"].astype(float), 2 * np.ones(3))
    assert found["double"].dtype == np.float64
    assert np.array_equal(found["double"], np.linspace(0, 1, 4) / 3)
    assert np.array_equal(found["integers"], [[1, 2, 3], [4, 5, 6]])
    assert np.array_equal(found["flags"], [False, True])
    assert found["number"] == -2 + 1j
    assert found["nothing"].shape == (0, 2)
    print("types: in and out")


def plugins(folder: Path, plugin: str, other: str) -> None:
    """What holds of plug-ins: their paths, and machine code of one for another."""
    recurrent, executable = folder / "recurrent.mlirbc", folder / "pjrt.exe"
    load = functools.partial(runtime.load, recurrent)
    absent = "BackendNotFoundError"
    says(lambda: load(plugin="nowhere.so"), "no PJRT plug-in at", kind=absent)
    for wrong in (folder / "text.mlir", sys.modules["_ctypes"].__file__):
        says(lambda wrong=wrong: load(plugin=wrong), "this file is no PJRT plug-in", kind=absent)
    needs = "no PJRT plug-in for cuda was named or is installed"
    says(lambda: load(engine="pjrt", backend="cuda"), needs, "jax-cuda13-pjrt", kind=absent)
    here = [str(each.path) for each in runtime.engines() if each.engine == "pjrt"]
    assert sorted(here) == sorted([plugin, other])
    for backend in (None, "cpu"):
        found = load(engine="pjrt", backend=backend).flat(*stored(recurrent, "argument"))
        agree(found, stored(recurrent, "result"))
    says(lambda: load(engine="iree", plugin=plugin), "IREE takes no PJRT plug-in")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", runtime.CompiledAgainWarning)
        program = runtime.load_executable(executable, plugin=other)
    (warning,) = (each for each in caught if each.category is runtime.CompiledAgainWarning)
    assert "compiled again: it was made for" in str(warning.message)
    agree(program.flat(*stored(recurrent, "argument")), stored(recurrent, "result"))
    print("machine code of another plug-in: compiled again")


def main(name: str, *paths: str) -> None:
    folder = Path(name)
    bare(folder)
    if paths:
        plugin, other = paths
        engine(folder, "pjrt", plugin=plugin)
        engine(folder, "pjrt", plugin=other)
        engine(folder, "pjrt", plugin=plugin)  # its machine code is the last that is written
        engine(folder, "iree")
        types(folder, plugin=plugin)
        plugins(folder, plugin, other)


if __name__ == "__main__":
    main(*sys.argv[1:])
