"""A `pullback` command to call in-process, and small files to point it at."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pullback_cli import main

MODEL = '''
"""A target for the tests."""
import jax
import jax.numpy as jnp
import numpy as np

@jax.custom_jvp
def cube(x):
    return x * x * x

cube.defjvp(lambda primals, tangents: (cube(primals[0]), 3 * primals[0] ** 2 * tangents[0]))

def f(x, y):
    return {"first": cube(x) + y, "second": jnp.sum(x)}

def scalar(x, y):
    return jnp.sum(cube(x) * y)

def needs_types(x):
    return x

needs_types.example_args = (jax.ShapeDtypeStruct((2,), jnp.float32),)

def branches(x):
    if x > 0:
        return x
    return -x

def named(x, *, scale):
    return x * scale

def words(x):
    return "two words"

def steps(x):
    yield x

not_a_function = 3
example_args = (np.array([1.0, 2.0], np.float32), np.float32(0.5))
'''


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A file with functions to trace."""
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    return path


@pytest.fixture
def pullback_command():
    """Runs `pullback` with these arguments, without a process of its own."""

    def call(*arguments: object, stdin: str | bytes | None = None) -> Result:
        result = CliRunner().invoke(main, [str(a) for a in arguments], input=stdin)
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return call
