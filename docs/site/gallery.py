"""Draw the pictures of the gallery: each runs one of the examples, and shows what it gives.

`make gallery` writes them to `docs/images`, and a test sees that each is there and on the page.
"""

from __future__ import annotations

import importlib.util
import itertools
import tempfile
from pathlib import Path
from typing import Any

import jax
import numpy as np

import pullback as pb

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "images"


def example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(Path(name).stem, ROOT / "examples" / name)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def lost_rules(plot: Any) -> Any:
    """Draw the derivative of each function, by its rule and without it."""
    figure, axes = plot.subplots(1, 3, figsize=(9, 2.8))
    titles = ["rounded weights", "a clipped gradient", "a distance"]
    ranges = [(-2, 2), (-4, 8), (-1, 1)]
    for ax, (f, _), title, ends in zip(
        axes, example("lost_rules.py").CASES.values(), titles, ranges
    ):
        x = np.linspace(*ends, 241, dtype=np.float32)
        exported = pb.load(jax.jit(f).lower(x[0]).as_text().encode())
        ax.plot(x, pb.vmap(exported.grad())(x), color="tab:red", label="of JAX's export")
        ax.plot(x, pb.vmap(pb.grad(f))(x), "--", color="tab:green", label="by the rule")
        ax.set(title=title, xlabel="x")
    axes[2].plot(0, 0, "o", color="tab:green")
    axes[2].text(-0.95, 0.3, "0; exported: NaN", fontsize=8)
    axes[0].set_ylabel("derivative")
    axes[1].legend(fontsize=8)
    return figure


def mechanics(plot: Any) -> Any:
    """Draw a double pendulum, and how its way depends on the stiffness of a spring."""
    pendulum = example("implicit_mechanics.py")
    params, q0 = pendulum.example_args

    def way(stiffness):
        def body(state, _):
            return pendulum.step({**params, "stiffness": stiffness}, state, 0.02), state[0]

        return jax.lax.scan(body, (q0, jax.numpy.zeros(2)), length=100)[1]

    q, dq = pb.jvp(way, (params["stiffness"],), (1.0,))
    time = 0.02 * np.arange(100)
    figure, axes = plot.subplots(1, 2, figsize=(9, 2.8))
    for i, color in enumerate(("tab:blue", "tab:orange")):
        axes[0].plot(time, q[:, i], color=color, label=f"bob {i + 1}")
        axes[1].plot(time, dq[:, i], color=color)
    axes[0].set(title="angles, by implicit midpoint steps", xlabel="time")
    axes[1].set(title="their derivative in the spring's stiffness", xlabel="time")
    axes[0].legend(fontsize=8)
    return figure


def forces(plot: Any) -> Any:
    """Draw how six atoms relax by the forces of a saved potential."""
    potential = example("forces/potential.py")
    with tempfile.TemporaryDirectory() as folder:
        potential.save(path := Path(folder) / "potential.mlirbc")
        both = pb.load(path, entry="both")
    senders, receivers = np.asarray(list(itertools.permutations(range(6), 2)), np.int32).T
    spare = np.zeros(potential.EDGES - 30, np.int32)
    shifts = np.zeros((potential.EDGES, 3))
    shifts[30:] = 10 * potential.CUTOFF
    edges = np.append(senders, spare), np.append(receivers, spare), shifts
    octahedron = np.concatenate([np.eye(3), -np.eye(3)]) * 1.5
    x = octahedron + 0.2 * np.random.default_rng(1).standard_normal((6, 3))
    energies, largest, ways = [], [], []
    for _ in range(150):
        value, force = both(x, *edges)
        energies.append(float(value))
        largest.append(float(np.abs(force).max()))
        ways.append(x)
        x = x + 0.02 * np.asarray(force)
    figure, axes = plot.subplots(1, 3, figsize=(9, 2.8))
    axes[0].plot(energies)
    axes[0].set(title="energy", xlabel="step")
    axes[1].semilogy(largest)
    axes[1].set(title="largest force", xlabel="step")
    for i in range(6):
        axes[2].plot(*np.array(ways)[:, i, :2].T, color="gray", linewidth=0.8)
        axes[2].plot(*x[i, :2], "o", color="tab:blue")
    axes[2].set(title="atoms, seen from above", aspect="equal")
    return figure


def control(plot: Any) -> Any:
    """Draw the way of a boat around an island, and where its sparse derivatives are not zero."""
    boat, solver = example("optimal_control/problem.py"), example("optimal_control/solve.py")
    with tempfile.TemporaryDirectory() as folder:
        boat.save(path := Path(folder) / "problem.mlirbc")
        problem = solver.Problem(path)
    states, thrusts = boat.split(solver.solve_by_scipy(problem)[0])
    figure, axes = plot.subplots(1, 3, figsize=(9, 2.8))
    axes[0].add_patch(plot.Circle(boat.ISLAND, boat.RADIUS, color="tab:green", alpha=0.4))
    axes[0].plot(*states[:, :2].T, ".-", color="tab:blue", markersize=4)
    axes[0].quiver(*states[::2, :2].T, *thrusts[::2].T, color="tab:orange", width=0.008, scale=4)
    axes[0].set(title="way and thrust", aspect="equal")
    for ax, name in zip(axes[1:], ("jacobian", "hessian")):
        pattern = problem.entries[name].pattern
        ax.plot(pattern.cols, pattern.rows, "s", markersize=0.8, color="tab:blue", rasterized=True)
        ax.set(title=f"{name}: {pattern.num_colors} products", aspect="equal")
        ax.set(xlim=(0, pattern.shape[1]), ylim=(pattern.shape[0], 0))
    return figure


def online_learning(plot: Any) -> Any:
    """Draw the loss of a pass of online learning over its rate, with tangents by the gradient."""
    learning = example("rules.py")
    *others, _ = learning.example_args
    loss = pb.value_and_grad(lambda rate: learning.train_step(*others, rate))
    rates = np.linspace(0.0, 3.0, 61, dtype=np.float32)
    values, _ = pb.vmap(loss)(rates)
    figure, ax = plot.subplots(figsize=(9, 2.8))
    ax.plot(rates, values, color="tab:blue")
    for rate in (0.1, 0.75, 2.0):
        value, slope = loss(np.float32(rate))
        near = rate + np.array([-0.25, 0.25])
        ax.plot(near, value + slope * (near - rate), color="tab:orange")
        ax.plot(rate, value, "o", color="tab:orange")
    ax.set(xlabel="learning rate", ylabel="mean loss of a pass")
    return figure


def attention(plot: Any) -> Any:
    """Draw a gradient by the rule of a kernel, and how far the derived one is from it."""
    kernels = example("attention_kernels.py")
    keys = jax.random.split(jax.random.key(0), 3)
    args = [0.1 * jax.random.normal(key, (2 * kernels.BLOCK, 128)) for key in keys]
    of = lambda f: pb.grad(lambda *args: kernels.loss(f, *args))(*args)  # noqa: E731
    by_rule = np.asarray(of(lambda *args: kernels.attention(True, *args)))
    apart = np.abs(by_rule - np.asarray(of(kernels.without_rule))).max(axis=1)
    figure, axes = plot.subplots(1, 2, figsize=(9, 2.8), width_ratios=(1, 1.4))
    axes[0].imshow(by_rule[::4, ::4], cmap="RdBu", interpolation="nearest")
    axes[0].set(title="cotangent of the queries", xticks=[], yticks=[])
    axes[1].semilogy(np.abs(by_rule).max(axis=1), color="tab:blue", label="largest, by the rule")
    axes[1].semilogy(apart, color="tab:orange", label="largest difference to the derived one")
    axes[1].set(title="by row", xlabel="query")
    axes[1].legend(fontsize=8)
    return figure


PICTURES = {
    "gallery_lost_rules.svg": (lost_rules, False),
    "gallery_mechanics.svg": (mechanics, True),
    "gallery_forces.svg": (forces, True),
    "gallery_control.svg": (control, True),
    "gallery_online_learning.svg": (online_learning, False),
    "gallery_attention.svg": (attention, False),
}
"""What draws each, and whether in 64 bits."""


def main() -> None:
    from matplotlib import pyplot

    pyplot.rcParams.update({"svg.hashsalt": "gallery", "svg.fonttype": "none"})
    for name, (draw, wide) in PICTURES.items():
        jax.config.update("jax_enable_x64", wide)
        figure = draw(pyplot)
        figure.tight_layout()
        figure.savefig(FOLDER / name, dpi=150, metadata={"Date": None})
        pyplot.close(figure)


if __name__ == "__main__":
    main()
