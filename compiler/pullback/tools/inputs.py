"""Read the arguments of a run from files of NumPy: `--input`."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pullback.errors import UsageError

Arrays = list[np.ndarray]
NUMBERS = "biufcV"
"""Kinds of NumPy's dtypes; `V` are bfloat16 and its kin."""
NUMBERED = "arr", "result"
"""What `numpy.savez` calls arrays without names, and `pullback run -o` its results."""
SHOWN = 8


def read(files: Sequence[Path], paths: Sequence[str], spec: str) -> Arrays:
    """Return the array of each argument of `spec`, read from these files.

    An array whose name in an .npz file is the path of an argument, such as `params['w']`, goes
    there. Arrays without names go to the other arguments, in order: those of .npy files, and those
    that are numbered (`arr_0`, `result_0`).

    Raises:
      UsageError: a file cannot be read, a name fits no argument, or there are not as many arrays as
        arguments.
    """
    known = {path for path in paths if paths.count(path) == 1}
    named: dict[str, np.ndarray] = {}
    in_order: Arrays = []
    for file in files:
        loaded = _load(file)
        if isinstance(loaded, np.ndarray):
            in_order.append(loaded)
            continue
        unknown = [name for name in loaded if name not in known]
        if twice := named.keys() & loaded.keys():
            raise UsageError(
                f"two input files hold an array called {_listed(sorted(twice))}",
                where=str(file),
                do="leave one of them out",
            )
        named |= {name: array for name, array in loaded.items() if name in known}
        in_order += [loaded[name] for name in _in_order(unknown, file, paths, spec)]
    return _arranged(named, in_order, paths, spec)


def _in_order(names: Sequence[str], file: Path, paths: Sequence[str], spec: str) -> list[str]:
    """Return the names that fit no argument in the order of their numbers, if all are numbered."""
    for stem in NUMBERED:
        numbered = [f"{stem}_{number}" for number in range(len(names))]
        if set(numbered) == set(names):
            return numbered
    raise UsageError(
        f"the input `{file}` has arrays that fit no argument of `{spec}`: {_listed(names)}",
        where=f"arguments: {_listed(paths)}",
        do="name each array by the path of its argument, as numpy.savez(file, x=…) does, or none: "
        "numpy.savez(file, …) keeps their order",
    )


def _arranged(
    named: Mapping[str, np.ndarray], in_order: Arrays, paths: Sequence[str], spec: str
) -> Arrays:
    left = [path for path in paths if path not in named]
    if len(left) == len(in_order):
        others = iter(in_order)
        return [named[path] if path in named else next(others) for path in paths]
    count = f"`{spec}` takes {len(paths)} arrays, and {len(named) + len(in_order)} are given"
    raise UsageError(
        f"{count}; there is none for {_listed(left)}" if named and not in_order else count,
        where=f"arguments: {_listed(paths)}",
        do="give --input FILE.npy for each of them, or .npz files with several",
    )


def _listed(names: Iterable[str]) -> str:
    every = [f"`{name}`" for name in names]
    return ", ".join([*every[:SHOWN], "…"] if len(every) > SHOWN else every)


def _load(path: Path) -> np.ndarray | dict[str, np.ndarray]:
    """Read a file of NumPy: an array, or those of an .npz file by name."""
    do = "write it by numpy.save or numpy.savez"
    try:
        loaded = np.load(path)
        if not isinstance(loaded, np.ndarray):
            with loaded as archive:
                loaded = {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        why = getattr(error, "strerror", None) or error
        if "pickle" in str(error):  # NumPy takes a file that it does not know for one
            why = "it holds objects of Python, or is of another format"
        raise UsageError(f"cannot read the input `{path}`: {why}", do=do) from error
    arrays = [loaded] if isinstance(loaded, np.ndarray) else loaded.values()
    if other := [array.dtype for array in arrays if array.dtype.kind not in NUMBERS]:
        raise UsageError(f"the input `{path}` holds {other[0]}, and no numbers", do=do)
    return loaded


def with_dtypes(arrays: Arrays, avals: Sequence[Any]) -> Arrays:
    """Restore the dtypes of bfloat16 and its kin, which NumPy's files hold as raw bytes."""
    return [
        array.view(aval.dtype)
        if array.dtype.kind == "V" and array.dtype.itemsize == aval.dtype.itemsize
        else array
        for array, aval in zip(arrays, avals, strict=True)
    ]
