"""Modules for the runtime to run, made by JAX: these tests never import the compiler."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import pytest

import pullback_runtime
from pullback_runtime.call import _primitive

ROOT = Path(__file__).parents[2]


@pytest.fixture
def module_of() -> Callable[..., Any]:
    """The StableHLO module of a function at example arguments, as an MLIR module."""
    return lambda function, *args: jax.jit(function).lower(*args).compiler_ir()


@pytest.fixture
def handle_of(module_of) -> Callable[..., Any]:
    """The handle of a function's module."""
    return lambda function, *args: pullback_runtime.make_handle(module_of(function, *args))


@pytest.fixture(autouse=True)
def fresh_state(monkeypatch):
    """No executables and no rules of other tests."""
    pullback_runtime.clear_cache()
    monkeypatch.setattr(_primitive, "_RULES", {})


@pytest.fixture
def in_process() -> Callable[..., str]:
    """Run a script in a process of its own, with extra environment; its standard output."""

    def run(script: str, **environment: str) -> str:
        path = f"{ROOT / 'runtime'}"
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", textwrap.dedent(script)],
            env={"PATH": "", "JAX_PLATFORMS": "cpu", "PYTHONPATH": path, **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run
