"""The known differences from JAX: which cases, at which stages, and why.

A difference that is not listed here fails the sweep and the sample.
"""

from __future__ import annotations

import fnmatch
from typing import NamedTuple

from tests.conformance.comparison import DIFFERS, FAILS, FINE, ONLY_JAX_REFUSES, Verdict


class Known(NamedTuple):
    """Cases and verdicts that have one reason.

    Attributes:
      cases: a pattern of case names, as a shell has them.
      stages: where they differ.
      status: how the stage ends.
      words: what the verdict says among other things.
      reason: why that is right, or whose limit it is.
    """

    cases: str
    stages: tuple[str, ...]
    status: str
    words: str
    reason: str


JAX_CANNOT = "JAX's own transpose rule fails on this call of the primitive"
JAX_CANNOT_0_12 = (
    "The call names no sharding of its result, without which JAX 0.12's own rule fails"
)
BROKEN_PROMISE = (
    "The call promises that indices are in bounds, and they are not. A gather then clamps, in JAX "
    "as in XLA; our derivative is that of clamping, JAX's drops"
)
NO_TRANSPOSE_SOLVE = (
    "JAX asks for transpose_solve; the solver is linear in its right-hand side here, and is "
    "transposed itself"
)
ZERO_TANGENTS = "JAX's rule for a body of the user's wants a tangent of every array; ours does not"
PADDING = (
    "For the padding value, JAX subtracts two totals, and rounds more than our total of a "
    "difference"
)
NO_REVERSE = (
    "JAX has no reverse mode for windows with a body of their own. Ours are transposed step by "
    "step; tests/frontend/test_native.py compares them with JAX's tangents of each direction"
)
DILATED = (
    "JAX transposes no window with dilation. Ours are transposed step by step; the products of "
    "cotangents with what JAX's jvp gives agree"
)

EXCEPTIONS: tuple[Known, ...] = (
    Known("mul_*", ("vjp",), ONLY_JAX_REFUSES, "_transpose_r", JAX_CANNOT),
    Known("conj_*", ("vjp",), ONLY_JAX_REFUSES, "_transpose_r", JAX_CANNOT),
    Known(
        "custom_linear_solve_*", ("vjp",), ONLY_JAX_REFUSES, "transpose_solve", NO_TRANSPOSE_SOLVE
    ),
    Known("reduce_*", ("jvp", "vjp"), ONLY_JAX_REFUSES, "ad_util.Zero", ZERO_TANGENTS),
    Known("reduce_m??_*", ("jvp", "vjp"), ONLY_JAX_REFUSES, "out_sharding", JAX_CANNOT_0_12),
    Known("pad_inshape_float16_*", ("vjp",), DIFFERS, "e-03 of", PADDING),
    Known("reduce_window_*", ("vjp",), ONLY_JAX_REFUSES, "Linearization failed", NO_REVERSE),
    Known("select_and_gather_add_*", ("vjp",), ONLY_JAX_REFUSES, "window dilation", DILATED),
    Known("gather_batchdims_*", ("vjp",), DIFFERS, "", BROKEN_PROMISE),
    Known("gather_op_shape_10_10_10_*", ("vjp",), DIFFERS, "", BROKEN_PROMISE),
    Known("scatter_*_out_of_bounds_*PROMISE_IN_BOUNDS*", ("vjp",), DIFFERS, "", BROKEN_PROMISE),
)


_BOTH = ("jvp", "vjp")
_WITH_RULE = "JAX has a rule for this step, which is not in the file"
IN_FILES: tuple[Known, ...] = (
    Known("acosh_*", _BOTH, DIFFERS, "not finite", "JAX's formula goes on where there is no value"),
    Known("approx_top_k_*", _BOTH, FAILS, "@ApproxTopK", _WITH_RULE),
    Known("bitcast_convert_type_*", _BOTH, FAILS, "bitcast_convert", _WITH_RULE),
    Known(
        "cholesky_*",
        _BOTH,
        DIFFERS,
        "error",
        "The primitive alone leaves what is above the diagonal, and JAX's tangent is 0 there",
    ),
    Known("digamma_*", _BOTH, DIFFERS, "not finite", "It is infinite in half precision there"),
    Known("eig_*", _BOTH, FAILS, "geev", _WITH_RULE),
    Known("igamma*", _BOTH, DIFFERS, "", _WITH_RULE + "; it has NaN where the file has numbers"),
    Known("integer_pow_*", _BOTH, DIFFERS, "not finite", "The products are infinite one by one"),
    Known(
        "m??_*complex*", _BOTH, ONLY_JAX_REFUSES, "complex", "The comparisons of parts are linear"
    ),
    Known("nextafter_*", _BOTH, FAILS, "bitcast_convert", _WITH_RULE),
    Known("random_gamma_*", _BOTH, DIFFERS, "error", _WITH_RULE + "; the steps reject and accept"),
    Known(
        "regularized_incomplete_beta_*", _BOTH, ONLY_JAX_REFUSES, "Betainc", "The steps have one"
    ),
    Known("stop_gradient_*", _BOTH, DIFFERS, "error", _WITH_RULE),
)
"""Those of what `jax.export` writes: a file has no rules of JAX's but what is found again."""


THROUGH_JAX: tuple[Known, ...] = (
    *EXCEPTIONS,
    Known(
        "clamp_*",
        _BOTH,
        ONLY_JAX_REFUSES,
        "same shapes",
        "JAX's rule takes no bounds that are scalars; they are broadcast in what we give it",
    ),
    Known(
        "rng_bit_generator_*",
        ("vmap",),
        DIFFERS,
        "other integers",
        "JAX's own rule for a batch of keys gives other bits than each key alone",
    ),
    Known(
        "scatter_m??_*complex64*",
        ("import", "jvp", "vjp", "vmap"),
        FAILS,
        "stablehlo.scatter with a body",
        "JAX compares complex numbers part by part there, and has no public scatter by such a body",
    ),
    Known(
        "reduce_window_m??_*complex64*",
        ("import", "vmap"),
        FAILS,
        "cannot lower the function",
        "JAX's own forward rule compares complex numbers there, which it cannot lower",
    ),
)
"""Those of `program.as_jax()`, which JAX differentiates by the rules of its own primitives."""

AT_POLES = (
    "There is no value there, and no series: infinities cancel in one formula, not in another"
)
ROUNDED_COEFFICIENTS = "What it rounds are coefficients, derivatives over k!, and not derivatives"
TRIGAMMA = (
    "JAX's derivative of digamma is wrong at negative numbers (1e12 instead of 10); our second "
    "derivative of lgamma is that of finite differences"
)
IN_TAYLOR_MODE = (
    *(known._replace(stages=("jet",)) for known in EXCEPTIONS if "jvp" in known.stages),
    Known("div_singularity_*", ("jet",), DIFFERS, "", AT_POLES),
    Known("lgamma_*", ("jet",), DIFFERS, "not finite", TRIGAMMA),
    Known("reduce_precision_*", ("jet",), DIFFERS, "error", ROUNDED_COEFFICIENTS),
    Known(
        "eig_*_0_0_*", ("jet",), ONLY_JAX_REFUSES, "eigenvectors", "An empty matrix has no terms"
    ),
)
"""Those of Taylor mode, which is compared with JAX's forward mode of forward mode."""

OF_WAYS = {"jax": THROUGH_JAX, "module": THROUGH_JAX, "jet": IN_TAYLOR_MODE}


def explanation(
    name: str, stage: str, verdict: Verdict, exceptions: tuple[Known, ...] = EXCEPTIONS
) -> str | None:
    """Why a verdict is as it should be; None if nothing explains it."""
    if verdict.status in FINE:
        return ""
    for known in exceptions:
        same = stage in known.stages and verdict.status == known.status
        same = same and known.words in verdict.reason
        if same and fnmatch.fnmatchcase(name, known.cases):
            return known.reason
    return None
