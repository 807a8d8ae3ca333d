"""The table of what reverse mode stores and computes again, by the user's line."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from click.testing import CliRunner

import pullback as pb
from benchmarks import programs as benchmark
from pullback_cli import main

X = jnp.linspace(0.1, 1.0, 6).reshape(2, 3)


def line(function: Callable[..., Any], text: str) -> str:
    """The place of the line of a function that has this text, as tables name it."""
    lines, first = inspect.getsourcelines(function)
    (number,) = (i for i, each in enumerate(lines) if text in each)
    return f"tests/program/test_residual_table.py:{first + number}"


def table(f: Callable[..., Any], *args: Any) -> Any:
    return pb.trace(f)(*args).split_vjp().residuals()


def place(row: Any) -> str:
    return row.line.partition(", in ")[0]


def straight(x):
    y = jnp.tanh(x @ x.T)
    return jnp.sum(y @ y)


def test_the_op_and_the_line_that_made_each_value():
    stored = table(straight, X).stored
    found = {(row.op, row.type, place(row)) for row in stored if not row.free}
    assert found == {("tanh", "float32[2,2]", line(straight, "jnp.tanh"))}


def test_arguments_and_results_cost_nothing():
    def both(x):
        y = x @ x.T
        return y, jnp.sum(y * y)

    found = table(both, X)
    assert {(row.op, row.free) for row in found.stored} == {
        ("argument", "an argument"),
        ("dot_general", "a result of the function"),
    }
    assert found.bytes == 0


def looped(x):
    def step(c, _):
        d = jnp.sin(c)
        return jnp.dot(d, d.T) @ c, None

    return jnp.sum(jax.lax.scan(step, x, None, length=5)[0])


def test_a_loop_stacks_values_of_its_iterations():
    rows = [row for row in table(looped, X).stored if row.loops]
    loop = f"5 × {line(looped, 'jax.lax.scan')}"
    assert all(row.loops == (loop,) for row in rows)
    assert ("dot_general", "float32[5,2,2]", line(looped, "jnp.dot")) in {
        (row.op, row.type, place(row)) for row in rows
    }


def nested(x):
    def inner(c, _):
        return jnp.sin(c), None

    def outer(c, _):
        return jax.lax.scan(inner, c, None, length=3)[0], None

    return jnp.sum(jax.lax.scan(outer, x, None, length=4)[0])


def test_loops_in_loops_are_named_from_outside():
    (row,) = (row for row in table(nested, X).stored if not row.free)
    assert row.loops == (f"4 × {line(nested, 'scan(outer')}", f"3 × {line(nested, 'scan(inner')}")
    assert row.bytes == 4 * 3 * X.nbytes


def test_a_branch_is_looked_into():
    def f(x):
        return jax.lax.cond(x[0, 0] > 0, lambda x: jnp.sum(jnp.tanh(x @ x.T) ** 2), jnp.sum, x)

    assert "tanh" in {row.op for row in table(f, X).stored}


def kept(x):
    def body(x):
        return jnp.sum(jnp.sin(jnp.dot(x, x.T)))

    save = jax.checkpoint_policies.dots_saveable
    return jax.checkpoint(body, policy=save)(x) ** 2


def test_what_a_policy_keeps_and_what_is_computed_again():
    found = table(kept, X)
    (row,) = (row for row in found.stored if row.op == "dot_general")
    assert row.kept == line(kept, "policy=save")

    def forgotten(x):
        return jnp.sum(jax.checkpoint(lambda x: jnp.sin(jnp.exp(x)))(x))

    found = table(forgotten, X)
    assert found.bytes == 0
    assert [(row.op, row.runs, row.elements) for row in found.recomputed] == [("exponential", 1, 6)]


def test_runs_are_counted_through_loops():
    @jax.checkpoint
    def step(c, _):
        return jnp.sin(jnp.exp(c)), None

    found = table(lambda x: jnp.sum(jax.lax.scan(step, x, None, length=7)[0]), X)
    assert ("exponential", 7, 42) in {(row.op, row.runs, row.elements) for row in found.recomputed}


def test_a_function_with_a_rule_is_named():
    @jax.custom_vjp
    def f(x):
        return jnp.sin(x)

    f.defvjp(lambda x: (f(x), jnp.linalg.inv(x @ x.T)), lambda r, ct: (ct * jnp.sum(r),))
    found = table(lambda x: jnp.sum(f(x)), X)
    assert [row.type for row in found.stored if not row.free] == ["float32[2,2]"]


def test_a_loaded_program_has_a_table():
    program = pb.load(pb.artifact.serialize(pb.trace(looped)(X)))
    before, after = table(looped, X), program.split_vjp().residuals()
    assert after.bytes == before.bytes
    assert {place(row) for row in after.stored if row.loops} == {
        place(row) for row in before.stored if row.loops
    }


def test_the_text_is_sorted_by_the_bytes_of_a_line():
    found = table(looped, X)
    assert list(found.by_line().values()) == sorted(found.by_line().values(), reverse=True)
    text = str(found)
    assert text.startswith("stored for the backward sweep: ")
    assert text.index("float32[5,2,3]") < text.index("float32[5,2,2]")


@pytest.mark.parametrize("case", benchmark.CASES, ids=lambda case: case.name)
def test_xla_allocates_what_the_table_says(case):
    f, args = case.make()
    program = pb.trace(f)(*args)
    split = program.split_vjp(0)
    results = sum(np.prod(aval.shape) * aval.dtype.itemsize for aval in program.out_avals)
    stored = split.residuals().stored
    pointers = 8 * (len(stored) + 1)  # to each result, which XLA counts as well
    told = sum(row.bytes for row in stored) + results + pointers
    assert told == pytest.approx(split.forward.compile().memory().outputs, rel=0.05)


# ----------------------------------------------------------------------------- in a shell


def run(*arguments: str) -> Any:
    return CliRunner().invoke(main, ["derive", *arguments])


def test_derive_explains():
    printed = run("examples/rules.py:train_step", "--grad", "--explain").output
    assert "stored for the backward sweep" in printed
    assert "XLA, for the grad as a whole: " in printed


def test_json_of_a_second_derivative():
    printed = run("examples/rules.py:train_step", "--grad", "--order", "2", "--explain", "--json")
    found = json.loads(printed.output)
    assert found["bytes"] == sum(row["bytes"] for row in found["stored"] if not row["free"]) > 0
    assert {"op", "line", "runs", "elements"} == found["recomputed"][0].keys()


@pytest.mark.parametrize("more", [["--jvp"], ["--grad", "--lower"], ["--vmap", "3"]])
def test_only_reverse_mode_is_explained(more):
    printed = run("examples/rules.py:train_step", "--explain", *more)
    assert printed.exit_code != 0
    said = str(printed.exception) + printed.output
    assert "--explain is about reverse mode, and prints no module" in said


def test_json_wants_explain():
    printed = run("examples/rules.py:train_step", "--grad", "--json")
    assert "--json" in str(printed.exception) + printed.output
    assert printed.exit_code != 0
