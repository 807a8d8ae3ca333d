"""Reject derivatives of reductions whose body is not associative.

XLA combines the elements of a reduction in an order of its own, in trees on a GPU and from 32
elements on a CPU, and so do we. For a body that is not associative, each order gives another
function. No code shows whether a body is associative, so samples tell.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pullback._jax import ir
from pullback.autodiff.registry import Op
from pullback.errors import MissingRuleError
from pullback.ir import build
from pullback.ir.locations import user_line
from pullback.ir.symbols import make_public
from pullback.rules.body_patterns import COMMUTATIVE, body_name
from pullback.rules.scalar_bodies import lift
from pullback_runtime import call_module, make_handle

SAMPLES = 64
MOST_DIFFERENT = 4
"""Samples of which the results may differ: rounding errors may be large where terms cancel."""

Body = Callable[..., Sequence[Any]]


def check_associative(op: Op) -> None:
    """Raise MissingRuleError if the body of a reduction or of a window op is not associative."""
    region = op.operation.regions[0]
    if body_name(region) in COMMUTATIVE:
        return
    text = _as_text(op, region.blocks[0])
    if not _is_associative(text):
        raise not_associative(op.name, user_line(op.operation.location))


def not_associative(name: str, where: str | None) -> MissingRuleError:
    return MissingRuleError(
        f"no derivative rule for `{name}` with a body that is not associative: its value depends "
        "on the order in which XLA combines the elements",
        where=where,
        do="combine them in an order of your own, by jax.lax.scan; or write a body with "
        "body(body(a, b), c) == body(a, body(b, c))",
    )


def is_associative(body: Body, dtypes: Sequence[Any]) -> bool:
    """Return True if body(body(a, b), c) equals body(a, body(b, c)) up to rounding, for samples.

    Args:
      body: takes one array of each dtype, and then another; returns one of each.
    """

    @jax.jit
    def both(a: Any, b: Any, c: Any) -> tuple[list[Any], list[Any]]:
        return list(body(*body(*a, *b), *c)), list(body(*a, *body(*b, *c)))

    with (
        jax.ensure_compile_time_eval(),
        jax.debug_nans(False),
        jax.debug_infs(False),
        jax.transfer_guard("allow"),
    ):
        triple = list(_samples(dtypes))
        found = zip(*both(*triple), *triple, strict=True)
        differ = [_differ(*map(np.asarray, values)) for values in found]
    return int(np.sum(np.any(differ, axis=0))) <= MOST_DIFFERENT


def _samples(dtypes: Sequence[Any]) -> Iterator[list[Any]]:
    """Yield three lists with one array per dtype: magnitudes 0.1 to 3, a third of them negative."""
    random = np.random.default_rng(0)
    for _ in range(3):
        yield [_sample(dtype, random) for dtype in dtypes]


def _sample(dtype: Any, random: np.random.Generator) -> Any:
    if not jnp.issubdtype(dtype, jnp.inexact):
        return jnp.asarray(random.integers(0, 2 if dtype == np.dtype(bool) else 4, SAMPLES), dtype)
    numbers = 10 ** random.uniform(-1, 0.5, SAMPLES) * random.choice([-1, 1, 1], SAMPLES)
    if jnp.issubdtype(dtype, jnp.complexfloating):
        numbers = numbers * np.exp(1j * random.uniform(0, 2 * np.pi, SAMPLES))
    return jnp.asarray(numbers).astype(dtype)


def _differ(left: Any, right: Any, *given: Any) -> Any:
    """Return a mask of where two results differ by more than rounding; False for NaNs."""
    if not jnp.issubdtype(left.dtype, jnp.inexact):
        return left != right
    wide = np.result_type(left.dtype if left.dtype.kind in "fc" else np.float32, np.float32)
    tolerance = 2 * float(jnp.finfo(left.dtype).eps) ** 0.5
    x, y, *others = (np.asarray(each, wide) for each in (left, right, *given))
    with np.errstate(all="ignore"):
        scale = np.max(np.abs([x, y, *others]), axis=0)
        return np.abs(x - y) > tolerance * (1 + scale)  # False for NaN


def _as_text(op: Op, body: Any) -> str:
    """Return the text of a module whose @main applies the scalar body to arrays of samples."""
    diff, count = op.frame.diff, 2 * len(op.results)
    types = [build.with_shape(v.type, (SAMPLES,)) for v in body.arguments]
    loc = op.operation.location
    name, block = diff.add_function("body", types, types[: count // 2], loc)
    with build.inserting(ir.InsertionPoint(block), loc):
        build.emit("func.return", (), lift(diff, body, list(block.arguments), (SAMPLES,)))
    make_public(diff.function(name), "main")
    text = str(diff.function(name))
    diff.drop_function(name)
    return text


@functools.lru_cache(maxsize=256)
def _is_associative(text: str) -> bool:
    handle = make_handle(text)
    dtypes = [aval.dtype for aval in handle.out_avals]
    with jax.enable_x64(True):
        return is_associative(functools.partial(call_module, handle), dtypes)
