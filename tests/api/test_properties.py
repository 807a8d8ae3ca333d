"""Random programs, and in files: value, both modes, second order and batches agree with JAX.

A program is a chain of steps on a small vector `x`, with a second vector `p`. Some steps hold a
chain: loops, branches, calls, functions with rules. Rules are false on purpose (a factor that is
not the derivative's), so that a result that agrees cannot have been found without them.

Where JAX refuses (forward mode of custom_vjp, reverse mode of while) or loses a rule (second order
inside scan), the reference is the same mathematics in a form that JAX can do: loops unrolled,
conditions as selects, custom_vjp as custom_jvp.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st
from jax import lax
from jax.custom_derivatives import linear_call

import pullback as pb
from pullback import artifact

SIZE = 3
MATRIX = np.array([[0.4, -0.3, 0.2], [0.1, 0.5, -0.6], [-0.2, 0.3, 0.7]])
FALSE_FORWARD = 1.5
FALSE_REVERSE = 0.75

pytestmark = pytest.mark.usefixtures("float64")

Chain = list[tuple[Any, ...]]
Step = Callable[..., jax.Array]


# --------------------------------------------------------------------------- steps, the same

LEAVES: dict[str, Step] = {
    # native
    "sin": lambda x, p: jnp.sin(x),
    "tanh": lambda x, p: jnp.tanh(x + p),
    "product": lambda x, p: x * p,
    "quotient": lambda x, p: x / (1 + p * p),
    "exp": lambda x, p: jnp.exp(-x * x),
    "sqrt": lambda x, p: jnp.sqrt(1 + x * x) - p,
    "atan2": lambda x, p: jnp.atan2(x, 2 + p * p),
    "power": lambda x, p: (1 + x * x) ** (0.5 * jnp.sin(p)),
    "abs": lambda x, p: jnp.abs(x - 0.3) - p,
    "maximum": lambda x, p: jnp.maximum(x, p),
    "clamp": lambda x, p: jnp.clip(x, -0.8, 0.9) + p,
    "matrix": lambda x, p: MATRIX @ x,
    "outer": lambda x, p: jnp.outer(x, jnp.sin(p)) @ p,
    "where": lambda x, p: jnp.where(x > p, x * x, p),
    "slices": lambda x, p: jnp.concatenate([x[1:], p[:1] * x[:1]]),
    "reversed": lambda x, p: x[::-1] * p,
    "pad": lambda x, p: jnp.pad(x, (1, 0))[:SIZE] + jnp.sin(x),
    "gather": lambda x, p: x[jnp.array([2, 0, 2])],
    "scatter": lambda x, p: x.at[jnp.array([0, 2])].add(p[:2] * x[1]),
    "dynamic": lambda x, p: lax.dynamic_update_slice(x, jnp.sin(p[:1]) * x[1], (1,)),
    "mean": lambda x, p: x - x.mean(),
    "largest": lambda x, p: x * x.max() * 0.5,
    # kept: JAX's rule is behind them
    "logistic": lambda x, p: lax.logistic(3 * x) * p,
    "erf": lambda x, p: lax.erf(x) + p,
    "cube": lambda x, p: x**3 * 0.2,
    "cumsum": lambda x, p: jnp.cumsum(x) * 0.3,
    "cumprod": lambda x, p: jnp.cumprod(x + p),
    "prod": lambda x, p: jnp.prod(1.2 + 0.3 * x) * jnp.sin(p),
    "sort": lambda x, p: jnp.sort(x) * p,
    "softmax": lambda x, p: jax.nn.softmax(x) * 2,
    "gelu": lambda x, p: jax.nn.gelu(x),
    "relu": lambda x, p: jax.nn.relu(x) + jnp.sin(p),
    "asinh": lambda x, p: jnp.arcsinh(x * p),
    "solve": lambda x, p: jnp.linalg.solve(MATRIX + jnp.eye(3), x),
    "stop": lambda x, p: lax.stop_gradient(x) * jnp.sin(x) + p,
}


# ------------------------------------------------------------------------ steps, as users write


def _scan(body: Step, x: Any, p: Any, count: int) -> Any:
    def step(carry: Any, row: Any) -> Any:
        carry = body(carry, row)
        return carry, carry * row

    last, rows = lax.scan(step, x, jnp.stack([p * (i + 1) * 0.5 for i in range(count)]))
    return last + 0.1 * rows.sum(0)


def _fori(body: Step, x: Any, p: Any, count: int) -> Any:
    return lax.fori_loop(1, 1 + count, lambda i, c: body(c, p * i * 0.5), x)


def _while(body: Step, x: Any, p: Any, count: int) -> Any:
    def goes_on(state: Any) -> Any:
        return (state[0] < count) & (jnp.sum(state[1] ** 2) < 4)

    return lax.while_loop(goes_on, lambda s: (s[0] + 1, body(s[1], p)), (0, x))[1]


def _cond(body: Step, x: Any, p: Any, count: int) -> Any:
    return lax.cond(x.sum() > p.sum(), body, lambda x, p: x * p, x, p)


def _jit(body: Step, x: Any, p: Any, count: int) -> Any:
    called = jax.jit(body)
    return called(called(x, p), p)


def _checkpoint(body: Step, x: Any, p: Any, count: int) -> Any:
    return jax.checkpoint(body)(x, p)


def _custom_vjp(body: Step, x: Any, p: Any, count: int) -> Any:
    f = jax.custom_vjp(body)

    def backward(residuals: Any, ct: Any) -> Any:
        return tuple(FALSE_REVERSE * found for found in jax.vjp(body, *residuals)[1](ct))

    f.defvjp(lambda x, p: (f(x, p), (x, p)), backward)
    return f(x, p)


def _sine_jvp(body: Step, x: Any, p: Any, count: int) -> Any:
    """The rule closes over `p`, and its function does not."""
    f = jax.custom_jvp(jnp.sin)
    f.defjvp(lambda primals, tangents: (f(*primals), tangents[0] * jnp.cos(primals[0]) * p))
    return f(body(x, p))


def _sine_bwd(body: Step, x: Any, p: Any, count: int) -> Any:
    """The same in reverse, where the residual is the argument."""
    f = jax.custom_vjp(jnp.sin)
    f.defvjp(lambda x: (f(x), x), lambda x, ct: (ct * jnp.cos(x) * p,))
    return f(body(x, p))


def _linear_call(body: Step, x: Any, p: Any, count: int) -> Any:
    def times(residuals: Any, v: Any) -> Any:
        return residuals * v

    return linear_call(times, times, body(x, p), p)


# ------------------------------------------------------------------- steps, as JAX can do them


def _unrolled_scan(body: Step, x: Any, p: Any, count: int) -> Any:
    total = jnp.zeros_like(x)
    for i in range(count):
        row = p * (i + 1) * 0.5
        x = body(x, row)
        total += x * row
    return x + 0.1 * total


def _unrolled_fori(body: Step, x: Any, p: Any, count: int) -> Any:
    return functools.reduce(lambda c, i: body(c, p * i * 0.5), range(1, 1 + count), x)


def _unrolled_while(body: Step, x: Any, p: Any, count: int) -> Any:
    going = jnp.array(True)
    for _ in range(count):
        going &= jnp.sum(x**2) < 4
        x = jnp.where(going, body(x, p), x)
    return x


def _select(body: Step, x: Any, p: Any, count: int) -> Any:
    return jnp.where(x.sum() > p.sum(), body(x, p), x * p)


def _false_forward(factor: float, body: Step, x: Any, p: Any, count: int) -> Any:
    f = jax.custom_jvp(body)

    @f.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        return f(*primals), factor * jax.jvp(body, primals, tangents)[1]

    return f(x, p)


def _sine_of_arguments(body: Step, x: Any, p: Any, count: int) -> Any:
    f = jax.custom_jvp(lambda x, p: jnp.sin(x))
    f.defjvp(lambda primals, ts: (f(*primals), ts[0] * jnp.cos(primals[0]) * primals[1]))
    return f(body(x, p), p)


_custom_jvp = functools.partial(_false_forward, FALSE_FORWARD)

STRUCTURES: dict[str, tuple[Step, Step]] = {
    "scan": (_scan, _unrolled_scan),
    "fori": (_fori, _unrolled_fori),
    "while": (_while, _unrolled_while),
    "cond": (_cond, _select),
    "jit": (_jit, lambda body, x, p, count: body(body(x, p), p)),
    "checkpoint": (_checkpoint, lambda body, x, p, count: body(x, p)),
    "custom_jvp": (_custom_jvp, _custom_jvp),
    "custom_vjp": (_custom_vjp, functools.partial(_false_forward, FALSE_REVERSE)),
    "jvp rule around a value": (_sine_jvp, _sine_of_arguments),
    "bwd rule around a value": (_sine_bwd, _sine_of_arguments),
    "linear_call": (_linear_call, lambda body, x, p, count: body(x, p) * p),
}
RULES = frozenset({"custom_jvp", "custom_vjp"})
"""Steps whose rule differentiates their chain with JAX: the chain is as JAX can do it."""


def run(chain: Chain, reference: bool, x: Any, p: Any) -> Any:
    """What a chain of steps makes of x."""
    for name, *rest in chain:
        if not rest:
            x = LEAVES[name](x, p)
            continue
        inner, count = rest
        body = functools.partial(run, inner, reference or name in RULES)
        x = STRUCTURES[name][reference](body, x, p, count)
    return x


# --------------------------------------------------------------------------------- strategies

leaves = st.sampled_from(sorted(LEAVES)).map(lambda name: (name,))


def chains_of(steps: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Steps that hold a chain of such steps."""
    inner = st.lists(steps, min_size=1, max_size=2)
    return st.tuples(st.sampled_from(sorted(STRUCTURES)), inner, st.integers(1, 3))


programs = st.lists(st.recursive(leaves, chains_of, max_leaves=4), min_size=1, max_size=2)


# --------------------------------------------------------------------------------------- test

SECOND = {"jvp of vjp": ("vjp", "jvp"), "vjp of vjp": ("vjp", "vjp"), "vjp of jvp": ("jvp", "vjp")}


def forward(f: Step, count: int) -> Step:
    return lambda *args: jax.tree.leaves(jax.jvp(f, args[:count], args[count:]))


def reverse(f: Step, count: int) -> Step:
    def derived(*args: Any) -> Any:
        out, pull = jax.vjp(lambda *inner: tuple(jax.tree.leaves(f(*inner))), *args[:count])
        return [*out, *pull(tuple(args[count:]))]

    return derived


BATCHES = {
    "vmap": ("vmap",),
    "vmap of jvp": ("jvp", "vmap"),
    "vmap of vjp": ("vjp", "vmap"),
    "jvp of vmap": ("vmap", "jvp"),
    "vjp of vmap": ("vmap", "vjp"),
    "vjp of vmap of vjp": ("vjp", "vmap", "vjp"),
}
ITEMS = 2


def batch(f: Step, axes: list[Any]) -> Step:
    return jax.vmap(lambda *args: jax.tree.leaves(f(*args)), axes)


def directions(values: list[Any], random: np.random.Generator) -> list[Any]:
    return [jnp.asarray(random.standard_normal(value.shape)) for value in values]


def derive(
    program: pb.Program, reference: Step, values: list[Any], modes: tuple[str, ...]
) -> tuple[pb.Program, Step, list[Any]]:
    """Both derivatives, as functions of leaves, and the values to evaluate them at."""
    random = np.random.default_rng(len(modes))
    for mode in modes:
        count = len(values)
        if mode == "vmap":  # all items share `p`
            axes = [None if i == 1 else 0 for i in range(count)]
            reference = batch(reference, axes)
            in_axes = jax.tree.unflatten(program.in_tree, axes)[0]
            program = program.vmap(in_axes, axis_size=ITEMS)
            near = [v + 0.2 * d for v, d in zip(values, directions(values, random), strict=True)]
            pairs = zip(values, near, axes, strict=True)
            values = [v if axis is None else jnp.stack([v, w]) for v, w, axis in pairs]
            continue
        like = values if mode == "jvp" else jax.tree.leaves(jax.eval_shape(reference, *values))
        reference = (forward if mode == "jvp" else reverse)(reference, count)
        program = program.jvp() if mode == "jvp" else program.vjp()
        values = [*values, *directions(like, random)]
    return program, reference, values


def ours_of(program: pb.Program, values: list[Any]) -> list[Any]:
    """The results of a program, whatever trees its arguments and results have."""
    args, kwargs = jax.tree.unflatten(program.in_tree, values)
    return jax.tree.leaves(program(*args, **kwargs))


def differences(
    chain: Chain,
    x: Any,
    p: Any,
    second: tuple[str, ...],
    batched: tuple[str, ...],
    in_file: bool = False,
) -> None:
    """Asserts that all derivatives of a chain agree, from one compiled module.

    With `in_file`, the derivatives are of the program as a file has it, with rules for them only.
    """
    program = pb.trace(functools.partial(run, chain, False))(x, p)
    if in_file:
        program = pb.load(artifact.serialize(program, order=2))
    reference = functools.partial(run, chain, True)
    derived = [
        derive(program, reference, [x, p], modes)
        for modes in ((), ("jvp",), ("vjp",), second, batched)
    ]

    def everything(inputs: list[Any]) -> Any:
        return [
            (ours_of(ours, values), jax.tree.leaves(theirs(*values)))
            for (ours, theirs, _), values in zip(derived, inputs, strict=True)
        ]

    inputs = [values for _, _, values in derived]
    compiled = jax.jit(everything).lower(inputs).compile()
    for found, wanted in compiled(inputs):
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            scale = 1 + float(jnp.max(jnp.abs(other)))
            np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-9 * scale)


@settings(
    derandomize=True,
    deadline=None,
    database=None,
    # Not Phase.shrink: an example takes a second, and the first failing one is short enough.
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(
    programs,
    st.integers(0, 2**16),
    st.sampled_from(sorted(SECOND)),
    st.sampled_from(sorted(BATCHES)),
    st.booleans(),
)
def test_derivatives_of_random_programs_agree_with_jax(chain, seed, second, batched, in_file):
    random = np.random.default_rng(seed)
    x, p = (jnp.asarray(random.uniform(-1.5, 1.5, SIZE)) for _ in range(2))
    differences(chain, x, p, SECOND[second], BATCHES[batched], in_file)


@pytest.mark.parametrize(
    ("name", "second"), [*zip(sorted(STRUCTURES), sorted(SECOND) * len(STRUCTURES), strict=False)]
)
def test_each_structure_around_each_kind_of_step(name, second):
    """The corners that random programs might miss: every structure, with a rule inside."""
    chain = [(name, [("sin",), ("custom_jvp", [("product",)], 1), ("logistic",)], 3)]
    x, p = jnp.array([0.3, -0.4, 0.7]), jnp.array([0.2, 0.6, -0.5])
    differences(chain, x, p, SECOND[second], BATCHES["vjp of vmap of vjp"])


@pytest.mark.parametrize("first", range(0, len(LEAVES), 6))
def test_every_leaf(first):
    """In chains of six, where each is also differentiated with respect to `p`."""
    chain = [(name,) for name in sorted(LEAVES)[first : first + 6]]
    x, p = jnp.array([0.31, -0.47, 0.78]), jnp.array([0.27, 0.69, -0.53])
    differences(chain, x, p, SECOND["jvp of vjp"], BATCHES["vmap of vjp"])
