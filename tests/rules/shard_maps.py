"""Differentiate shard_map on four virtual devices; print how far each case is from JAX, as JSON.

A process of its own, because the number of devices is fixed when JAX starts. One record per case:
a body, its arguments, and how arguments and results lie on the devices. Each is differentiated with
and without JAX's check of what varies, where JAX can. The rules are false on purpose, and some are
not linear: they tell the whole cotangent from the part of one device.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

os.environ["XLA_FLAGS"] = (
    f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4"
)

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_derivatives import linear_call
from jax.sharding import AxisType, PartitionSpec as P

import pullback as pb
from pullback.files.write import serialize

ROWS, SQUARE = (("i", 4),), (("i", 2), ("j", 2))
RING = [(d, (d + 1) % 4) for d in range(4)]


class Case(NamedTuple):
    """A body, the shapes of its arguments, where they and the results lie, and on which mesh."""

    body: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    in_specs: Any
    out_specs: Any
    mesh: tuple[tuple[str, int], ...] = ROWS
    checks: tuple[bool, ...] = (True, False)
    manual: frozenset[str] = frozenset()


def ruled(bwd: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    """A sine with such a backward rule."""

    @jax.custom_vjp
    def f(x):
        return jnp.sin(x)

    f.defvjp(lambda x: (f(x), x), lambda x, ct: (bwd(x, ct),))
    return f


clipped = ruled(lambda x, ct: jnp.tanh(3 * ct) * jnp.cos(x))
nested = ruled(lambda x, ct: jnp.tanh(3 * ct) * clipped(x))


@jax.custom_jvp
def moved(x):
    return jnp.sin(x)


moved.defjvp(lambda primals, tangents: (moved(*primals), 5 * clipped(*primals) * tangents[0]))


def sums(r: Any, v: Any) -> Any:
    """A linear map whose false transpose needs the whole cotangent."""
    return linear_call(
        lambda r, v: lax.psum(r * v, "i"), lambda r, ct: 3 * r * ct, lax.stop_gradient(r), v
    )


def solved(x: Any, b: Any) -> Any:
    matrix = lax.psum(x.T @ jnp.sin(x), "i") + 5 * jnp.eye(3)

    def solve(_: Any, c: Any) -> Any:
        parts = lax.pcast(c, "i", to="varying") if not jax.typeof(c).mat.varying else c
        return jnp.linalg.solve(matrix, c) + 0.1 * lax.pmean(parts, "i")

    def back(_: Any, c: Any) -> Any:
        return jnp.tanh(jnp.linalg.solve(matrix.T, c))

    return lax.custom_linear_solve(lambda v: matrix @ v, jnp.sin(b), solve, back)


def steps(w: Any, x: Any) -> Any:
    def body(c: Any, k: Any) -> Any:
        pick = [lambda: clipped(c), lambda: c * lax.psum(x.sum(), "i"), lambda: jnp.cos(c)]
        return lax.switch(k, pick) + 0.1 * lax.psum((x * c).sum(0), "i"), c.sum()

    last, all_ = lax.scan(body, w, jnp.array([0, 1, 2, 0]))
    return last * all_.sum()


def ring(x: Any) -> Any:
    def body(carry: Any, k: Any) -> Any:
        total, block = carry
        return (total + jnp.sin(block * x) * k, lax.ppermute(block, "i", RING)), None

    return lax.scan(body, (x, x), jnp.arange(4.0))[0][0]


def normalized(x: Any) -> Any:
    largest = lax.pmax(lax.stop_gradient(x).max(), "i")
    return jnp.exp(x - largest) / lax.psum(jnp.exp(x - largest).sum(), "i")


def reductions(x: Any, w: Any) -> Any:
    y = jnp.zeros((2, 6)).at[jnp.array([0, 1]), jnp.array([1, 2])].add(x[:, 0])
    z = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2), (1, 2), "VALID")
    return lax.psum(x * w, "i") * jnp.max(x, 1, keepdims=True) + y + jnp.tile(z, 2)


def two_calls(w: Any, x: Any) -> Any:
    once = jax.jit(lambda w: lax.psum((jnp.cumsum(x, 0) * clipped(w)).sum(0), "i"))
    return jax.checkpoint(once)(once(w))


X, W = (8, 3), (3,)
I, HERE = P("i"), P()
CASES = {
    "psum": Case(lambda x: jnp.tanh(lax.psum(jnp.sin(x), "i")) * x, (X,), I, I),
    "pmean": Case(lambda x: x * jnp.sin(lax.pmean(x * x, "i")), (X,), I, I),
    "psum of equal values": Case(lambda w: lax.psum(jnp.sin(w), "i") * w, (W,), HERE, HERE),
    "equal argument": Case(lambda w, x: (jnp.sin(x @ w), jnp.sin(w)), (W, X), (HERE, I), (I, HERE)),
    "argument without derivative": Case(
        lambda w, x: lax.psum(jnp.sum(lax.stop_gradient(x) @ w), "i"), (W, X), (HERE, I), HERE
    ),
    "all_gather": Case(
        lambda x: x * jnp.sum(lax.all_gather(jnp.sin(x), "i", tiled=True) ** 2), (X,), I, I
    ),
    "all_to_all": Case(
        lambda x: jnp.sin(lax.all_to_all(jnp.sin(x), "i", 0, 1, tiled=True)), ((16, 2),), I, I
    ),
    "psum_scatter": Case(
        lambda x: jnp.sin(lax.psum_scatter(jnp.sin(x), "i", tiled=True)), ((16, 2),), I, I
    ),
    "ppermute in a scan": Case(ring, (X,), I, I),
    "axis_index": Case(lambda x: jnp.sin(x) * (1 + lax.axis_index("i")), (X,), I, I),
    "pmax of what has no derivative": Case(normalized, (X,), I, I),
    "groups": Case(
        lambda x: x * lax.psum(jnp.sin(x), "i", axis_index_groups=[[0, 2], [1, 3]]), (X,), I, I,
        checks=(False,),
    ),
    "empty": Case(lambda x, w: lax.psum(jnp.sum(x * w), "i") + w, ((0, 3), W), (I, HERE), HERE),
    "custom_vjp of an equal value": Case(
        lambda w, x: lax.psum((x * clipped(w)).sum(0), "i") * clipped(w), (W, X), (HERE, I), HERE
    ),
    "custom_vjp of a sum": Case(
        lambda w, x: clipped(lax.psum(x.sum(0), "i")) * w, (W, X), (HERE, I), HERE
    ),
    "custom_vjp in a backward rule": Case(
        lambda w, x: lax.psum((x * nested(w)).sum(0), "i"), (W, X), (HERE, I), HERE
    ),
    "custom_vjp in a forward rule": Case(
        lambda w, x: lax.psum((x * moved(w)).sum(0), "i") * w, (W, X), (HERE, I), HERE
    ),
    "linear_call": Case(lambda x: jnp.sin(sums(x, jnp.sin(x))), (X,), I, HERE),
    "custom_linear_solve": Case(solved, (X, W), (I, HERE), HERE, checks=(True,)),
    "scan and switch": Case(steps, (W, X), (HERE, I), HERE),
    "jit and checkpoint": Case(two_calls, (W, X), (HERE, I), HERE),
    "two axes": Case(
        lambda x, w: lax.psum(jnp.sin(x) @ w, "j") * clipped(lax.psum(x.sum(), ("i", "j"))),
        ((4, 6), (6, 3)), (P("i", "j"), P("j")), I, mesh=SQUARE,
    ),
    "one manual axis of two": Case(
        reductions, ((4, 6), (6,)), (I, HERE), I, mesh=SQUARE, manual=frozenset("i")
    ),
}  # fmt: skip


def mapped(case: Case, check: bool) -> Callable[..., Any]:
    names, sizes = zip(*case.mesh, strict=True)
    return jax.shard_map(
        case.body,
        mesh=jax.make_mesh(sizes, names, axis_types=(AxisType.Auto,) * len(names)),
        in_specs=case.in_specs,
        out_specs=case.out_specs,
        check_vma=check,
        **({"axis_names": set(case.manual)} if case.manual else {}),
    )


def weighted(f: Callable[..., Any]) -> Callable[..., Any]:
    """A scalar of all results, in which every element counts differently."""

    def loss(*args: Any) -> Any:
        outs = jax.tree.leaves(f(*args))
        return sum(jnp.vdot(jnp.cos(1.0 + jnp.arange(o.size)), o.ravel()) for o in outs)

    return loss


def differences(case: Case, check: bool) -> dict[str, float]:
    """The largest deviation from JAX: of the gradient, of its gradient, and of its linear map."""
    random = np.random.default_rng(0)
    args = [jnp.asarray(random.normal(size=shape)) for shape in case.shapes]
    moves = [jnp.asarray(random.normal(size=shape)) for shape in case.shapes]
    loss, argnums = weighted(mapped(case, check)), tuple(range(len(args)))

    def along(grad: Callable[..., Any], loss: Any = loss) -> Callable[..., Any]:
        def product(*args: Any) -> Any:
            found = grad(loss, argnums)(*args)
            return sum(jnp.vdot(a, b) for a, b in zip(found, moves, strict=True))

        return product

    expected = jax.jit(jax.grad(loss, argnums))(*args)
    second = jax.jit(jax.grad(along(jax.grad), argnums))(*args)
    _, pull = pb.vjp(loss, *args)
    loaded = pb.load(serialize(pb.trace(loss)(*args)))
    pairs = {
        "gradient": (pb.grad(loss, argnums)(*args), expected),
        "pull back": (pull(jnp.ones(())), expected),
        "second order": (pb.grad(along(pb.grad), argnums)(*args), second),
        "loaded": (loaded.grad(argnums)(*args), expected),
        "loaded, second order": (pb.grad(along(pb.grad, loaded), argnums)(*args), second),
        "as_jax": (jax.jit(jax.grad(loaded.as_jax(), argnums))(*args), expected),
    }
    if not any(rule in str(jax.make_jaxpr(loss)(*args)) for rule in ("custom_vjp", "hi_prim")):
        _, tangent = jax.jit(lambda *args: jax.jvp(loss, args, tuple(moves)))(*args)
        pairs["jvp"] = (pb.jvp(loss, args, moves)[1], tangent)
        pairs["linearize"] = (pb.linearize(loss, *args)[1](*moves), tangent)
    return {what: distance(*pair) for what, pair in pairs.items()}


def distance(found: Any, expected: Any) -> float:
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
    return max(float(np.max(np.abs(a - b) / (1 + np.abs(b)), initial=0.0)) for a, b in pairs)


def crashes_jax(case: Case) -> bool:
    """Whether XLA ends the process when JAX takes the gradient, of an empty array."""
    return jax.__version_info__[:2] == (0, 11) and any(0 in shape for shape in case.shapes)


def main() -> None:
    """Of the cases, one in `argv[2]` from the one at `argv[1]`; in JSON, name to deviations."""
    jax.config.update("jax_enable_x64", True)
    start, step = map(int, sys.argv[1:])
    found = {
        f"{name}, {'checked' if check else 'unchecked'}": differences(case, check)
        for name, case in list(CASES.items())[start::step]
        for check in case.checks
        if not crashes_jax(case)
    }
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
