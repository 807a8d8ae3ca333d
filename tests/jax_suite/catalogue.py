"""Which files of JAX's tests run, and the failures that are known, each with its reason.

A failure that is not listed here fails the run. A wrong number is never listed: it is mended.
"""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass

from tests.jax_suite.functions import DERIVATIVES, MAPS


@dataclass(frozen=True)
class Run:
    """A file of JAX's tests, and how it is run.

    Attributes:
      file: its name in the folder.
      mode: what is replaced in it, a key of `functions.OURS`.
      only: which tests, as pytest's `-k` has them; all by default.
      longest: how many seconds it may take.
    """

    file: str
    mode: str = DERIVATIVES
    only: str = ""
    longest: float = 1800


@dataclass(frozen=True)
class Known:
    """Tests that fail for one reason.

    Attributes:
      tests: a pattern of test ids, as a shell has them: `file.py::Class::test`.
      reason: why that is right, or whose limit it is.
      words: what the error says among other things.
      modes: what is replaced when they fail.
    """

    tests: str
    reason: str
    words: str = ""
    modes: tuple[str, ...] = (DERIVATIVES,)

    def is_about(self, test: str) -> bool:
        """Whether a test is one of them."""
        return fnmatch.fnmatchcase(test, self.tests)

    def explains(self, test: str, error: str) -> bool:
        """Whether a test fails for this reason."""
        return self.is_about(test) and self.words in error


DECOMPOSITIONS = "grad or jvp or testCholesky or testLstsq or testPinv or testQr or testSVD"
"""The tests of linalg_test.py that differentiate."""

RUNS = (
    Run("custom_api_test.py"),
    Run("custom_root_test.py"),
    Run("custom_linear_solve_test.py"),
    Run("lax_control_flow_test.py"),
    Run("lax_autodiff_test.py"),
    Run("linalg_test.py", only=DECOMPOSITIONS),
    Run("ode_test.py"),
    Run("batching_test.py", MAPS),
    Run("lax_vmap_test.py", MAPS),
)

JAXPRS = "looks at the jaxpr of a derivative, or into JAX's own residuals; ours calls a program"
TRACES = "counts how often a function is traced; ours may be traced once more"
WORDS = "both refuse, in other words than JAX's"
NUMBERS = "wants numbers of Python back; ours are arrays, as under jax.jit"
WORKS = "JAX refuses; here it has a derivative"
UNDER_JIT = (
    "a rule that closes over a value of jax.vmap or of the trace around it: docs/api.md; JAX's own "
    "derivative fails as well where the function is under jax.jit"
)
REPLACED = "replaces the rule of a function that has been differentiated: its trace is kept"
FALSE_RULE = "the rule gives another type than the function; so JAX's own fails under jax.jit"
NOT_LINEAR = "a rule that is affine in its tangents, not linear: refused in words"
BATCHED = (
    "a jax.custom_vmap is told that all its arguments are batched, also those that only share "
    "a call with what is: docs/api.md"
)
VALUE_OF_FWD = (
    "the rule is false on purpose: fwd gives another value than the function; JAX takes that of "
    "the function in a jax.checkpoint with optimize_remat, here it is that of fwd"
)

CUSTOM_RULES = (
    Known("custom_api_test.py::*::test_closed_over_tracers_error_message", WORDS, "MissingRule"),
    Known("custom_api_test.py::*::test_nondiff_arg_hiding_jvp_tracer", WORDS, "MissingRule"),
    Known("custom_api_test.py::*::test_jvp_rule_doesnt_return_pair_error_message", WORDS),
    Known("custom_api_test.py::*::test_closure_with_vmap2", UNDER_JIT, "LeakedValueError"),
    Known("custom_api_test.py::*::test_nondiff_arg_vmap_tracer", UNDER_JIT, "LeakedValueError"),
    Known("custom_api_test.py::*::test_bwd_closes_over_tracer", UNDER_JIT, "LeakedValueError"),
    Known("custom_api_test.py::*::test_fwd_closes_over_tracer", UNDER_JIT, "LeakedValueError"),
    Known("custom_api_test.py::*::test_hard_stuff2", FALSE_RULE, "typecheck"),
    Known("custom_api_test.py::*::test_symbolic_zero_custom_jvp", NUMBERS, "<class 'float'>"),
    Known("custom_api_test.py::*::test_symbolic_zero_custom_vjp", NUMBERS, "<class 'float'>"),
    Known("custom_api_test.py::*::test_symbolic_zero_custom_vjp_custom_pytree", REPLACED),
    Known("custom_api_test.py::*::test_closure_convert_mixed_consts", TRACES),
    Known("custom_api_test.py::*::test_custom_lin_pretty_print", JAXPRS),
    Known("custom_api_test.py::*::test_jvp_error", WORKS, "TypeError not raised"),
    Known("custom_api_test.py::*::test_optimize_remat_gh21303", VALUE_OF_FWD),
    Known("custom_api_test.py::*::test_jvp_closure", FALSE_RULE, "typecheck"),
    Known("custom_api_test.py::*::test_jacfwd", BATCHED, "Lists differ"),
    Known("custom_api_test.py::*::test_jvp_extra_batched_*", BATCHED, "Lists differ"),
    Known("custom_api_test.py::*::test_jvp_extra_batched_*", BATCHED, "axis spec None"),
    Known("custom_api_test.py::*::test_partial_eval_raises", WORKS, "ValueError not raised"),
)

LOOPS_AND_SOLVERS = (
    Known("lax_control_flow_test.py::*::testSwitchResidualsMerge", JAXPRS, "values to unpack"),
    Known("lax_control_flow_test.py::*::testWhileGradError_*", WORKS, "ValueError not raised"),
    Known("lax_control_flow_test.py::*::test_scan_diff_of_print", JAXPRS, "call_module"),
    Known("lax_control_flow_test.py::*::test_scan_vjp_forwards_*", JAXPRS, "args_res"),
    Known(
        "lax_control_flow_test.py::*::test_custom_jvp_tangent_cond_transpose",
        NOT_LINEAR,
        "NotLinearError",
    ),
    Known(
        "custom_linear_solve_test.py::*::*_without_transpose_solve", WORKS, "TypeError not raised"
    ),
    Known("ode_test.py::*::test_forward_mode_error", WORDS, "NotLinearError"),
)

IN_BATCHES = (
    Known("batching_test.py::*::testNonJaxTypedOutput", WORDS, "valid JAX type", (MAPS,)),
)

ZERO_TO_ZERO = "the derivative of 0.0 ** 0.0 is 0 here, which JAX's test wishes for; JAX gives NaN"

OPS = (
    Known("lax_autodiff_test.py::*::testDot*Grad*", JAXPRS, "Precision.HIGHEST"),
    Known("lax_autodiff_test.py::*::testPowSecondDerivative", ZERO_TO_ZERO, "DESIRED: array(nan)"),
    Known("lax_autodiff_test.py::*::test_scatter_apply_*", WORDS, "scatter_apply JVP"),
)

KNOWN = OPS + CUSTOM_RULES + LOOPS_AND_SOLVERS + IN_BATCHES
