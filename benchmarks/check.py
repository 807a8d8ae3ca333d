"""Time of `pullback check` of one small rule, and of 50 rules in one process.

    python benchmarks/check.py [--only shell]

JAX has nothing like it: `jax.test_util.check_grads` of each of the same functions, to the same
order, stands beside the 50 rules.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.test_util import check_grads
from rows import Row, Wanted, benchmark

from pullback.testing import check_rules

RULES = 50
RULE = """
import jax, jax.numpy as jnp, numpy as np
f = jax.custom_jvp(jnp.sin)
f.defjvp(lambda p, t: (f(*p), jnp.cos(p[0]) * t[0]))
example_args = (np.array([0.3, 0.5, 0.7], np.float32),)
"""


def rule(factor: float) -> Callable[..., Any]:
    """A function with a rule; each has a text of its own to compile."""
    f = jax.custom_vjp(lambda x: jnp.sum(jnp.sin(factor * x)))
    f.defvjp(lambda x: (f(x), x), lambda x, ct: (ct * factor * jnp.cos(factor * x),))
    return f


def seconds(run: Callable[[], Any]) -> float:
    """The time of one call."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def from_the_shell() -> float:
    """The time of a `pullback check`."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "rules.py").write_text(RULE)
        command = [sys.executable, "-m", "pullback", "check", f"{folder}/rules.py:f"]
        return seconds(lambda: subprocess.run(command, check=True, capture_output=True))


def rows(runs: int, wanted: Wanted) -> Iterator[Row]:
    if wanted("a small rule, from the shell"):
        ours = [from_the_shell() for _ in range(runs)]
        yield Row("a small rule, from the shell", ours, [1.0] * runs, "s", peer="a second", aim=3.0)
    if wanted(f"{RULES} rules"):
        rules, x = [rule(1 + i / 100) for i in range(RULES)], np.array([0.3, 0.5, 0.7], np.float32)
        ours = seconds(lambda: check_rules(lambda x: sum(f(x) for f in rules), x, order=2))
        theirs = seconds(
            lambda: [check_grads(f, (x,), 2, modes="rev", rtol=0.1, atol=0.1) for f in rules]
        )
        yield Row(f"{RULES} rules", [ours], [theirs], "s", peer="jax.test_util.check_grads")


if __name__ == "__main__":
    benchmark(rows, runs=3)()
