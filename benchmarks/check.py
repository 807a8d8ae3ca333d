"""Time checks of rules: `pullback check` of one small rule, and 50 rules in one process.

    python benchmarks/check.py [--rules 50]

The aims are 3 seconds and a minute. JAX has nothing like it: `jax.test_util.check_grads` of each of
the same functions, to the same order, stands beside it.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.test_util import check_grads

from pullback.testing import check_rules

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
    """The median of three runs of `pullback check`."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "rules.py").write_text(RULE)
        command = [sys.executable, "-m", "pullback", "check", f"{folder}/rules.py:f"]
        return statistics.median(
            seconds(lambda: subprocess.run(command, check=True, capture_output=True))
            for _ in range(3)
        )


def main() -> None:
    """Prints the seconds, and the ratio to JAX's check."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rules", type=int, default=50)
    count = parser.parse_args().rules
    print(f"one small rule from the shell, second order: {from_the_shell():.1f} s")
    rules, x = [rule(1 + i / 100) for i in range(count)], np.array([0.3, 0.5, 0.7], np.float32)
    ours = seconds(lambda: check_rules(lambda x: sum(f(x) for f in rules), x, order=2))
    theirs = seconds(
        lambda: [check_grads(f, (x,), 2, modes="rev", rtol=0.1, atol=0.1) for f in rules]
    )
    print(f"{count} rules: {ours:.0f} s; check_grads {theirs:.0f} s, ratio {ours / theirs:.1f}")


if __name__ == "__main__":
    main()
