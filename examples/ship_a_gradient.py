"""Ship a model as one file, and differentiate it where its source is not to be had.

    python examples/ship_a_gradient.py

The first process traces a model with a custom rule and saves it. The second has no access to
the model's source: it loads the file, takes a gradient, a forward derivative through the
`custom_vjp` (which JAX itself refuses), and a Hessian-vector product, and compares them with
what the first process computed by other means.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

MODEL = '''
import jax
import jax.numpy as jnp


@jax.custom_vjp
def smooth_norm(x):
    """sqrt(1 + |x|^2), with a reverse rule that reuses the result."""
    return jnp.sqrt(1.0 + jnp.sum(x * x))


def forward(x):
    norm = smooth_norm(x)
    return norm, (x, norm)


def backward(residuals, cotangent):
    x, norm = residuals
    return (cotangent * x / norm,)


smooth_norm.defvjp(forward, backward)


def energy(params, x):
    hidden = jnp.tanh(params["w"] @ x + params["b"])
    return smooth_norm(hidden) + 0.1 * jnp.sum(x**3)


params = {"w": jnp.linspace(-1.0, 1.0, 12).reshape(4, 3), "b": jnp.linspace(0.0, 0.5, 4)}
x = jnp.array([0.3, -0.7, 1.1])
direction = jnp.array([1.0, 2.0, -1.0])
'''

SAVE = """
import sys
import jax
import jax.numpy as jnp
import numpy as np
import pullback as pb
from model import direction, energy, params, x

pb.trace(energy)(params, x).save(sys.argv[1])

gradient = jax.grad(energy, argnums=1)
curvature = jax.grad(lambda x: jnp.vdot(gradient(params, x), direction))
np.savez(
    sys.argv[2], w=params["w"], b=params["b"], x=x, direction=direction,
    energy=energy(params, x), gradient=gradient(params, x),
    along=jnp.vdot(gradient(params, x), direction),
    curvature=curvature(x),
)
"""

LOAD = """
import importlib.util
import sys
import numpy as np
import pullback as pb

assert importlib.util.find_spec("model") is None, "the model's source is not here"
energy = pb.load(sys.argv[1])
data = np.load(sys.argv[2], allow_pickle=False)
params, x, direction = {"w": data["w"], "b": data["b"]}, data["x"], data["direction"]


def show(what, found, expected, tolerance):
    error = float(np.max(np.abs(np.asarray(found) - expected)))
    print(f"{what:<28} {np.round(np.asarray(found), 5)}  error {error:.1e}")
    assert error < tolerance, f"{what}: {found} instead of {expected}"


gradient = energy.grad(argnums=1)
show("energy", energy(params, x), data["energy"], 1e-5)
show("gradient", gradient(params, x), data["gradient"], 1e-5)

_, along = energy.jvp(argnums=1)(params, x, direction)
show("forward through custom_vjp", along, data["along"], 1e-5)

_, curvature = gradient.jvp(argnums=1)(params, x, direction)
show("Hessian-vector product", curvature, data["curvature"], 1e-5)
"""


def run(code: str, *arguments: Path, extra_path: str = "") -> None:
    """Runs code in a process of its own, in which only `extra_path` can be imported as well."""
    environment = {**os.environ, "JAX_PLATFORMS": os.environ.get("JAX_PLATFORMS", "cpu")}
    paths = [extra_path, os.environ.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    subprocess.run([sys.executable, "-c", code, *map(str, arguments)], env=environment, check=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as source, tempfile.TemporaryDirectory() as shipped:
        (Path(source) / "model.py").write_text(MODEL)
        program, numbers = Path(shipped) / "energy.mlirbc", Path(shipped) / "numbers.npz"
        run(SAVE, program, numbers, extra_path=source)
        print(f"saved {program.name}: {program.stat().st_size} bytes; now another process:")
        run(LOAD, program, numbers)


if __name__ == "__main__":
    main()
