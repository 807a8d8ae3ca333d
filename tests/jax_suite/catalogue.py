"""Which files of JAX's tests run, and the failures that are known, each with its reason.

A failure that is not listed here fails the run. A wrong number is never listed: it is mended.
It is of jax 0.10.2 and 0.12; a test that only one of them has is listed like any other.
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

GRADIENTS = "grad or jvp or vjp or transpose or autodiff"
"""Tests that say in their names that they differentiate."""

OVER_A_MESH = f"{GRADIENTS} or linearize or remat or custom or reduced"
"""The same, and those of values that devices hold terms or copies of."""

RUNS = (
    Run("custom_api_test.py"),
    Run("custom_root_test.py"),
    Run("custom_linear_solve_test.py"),
    Run("lax_control_flow_test.py"),
    Run("lax_autodiff_test.py"),
    Run("linalg_test.py", only=DECOMPOSITIONS),
    Run("ode_test.py"),
    Run("api_test.py"),
    Run("mutable_array_test.py"),
    Run("lax_test.py", only=f"{GRADIENTS} or gather or backward or squeeze or constant_folding"),
    Run("lax_numpy_test.py", only=GRADIENTS),
    Run("lax_numpy_indexing_test.py", only=GRADIENTS),
    Run("lax_scipy_test.py", only=GRADIENTS),
    Run("lax_scipy_special_functions_test.py", only="testScipySpecialFun or WofzJvp"),
    Run("nn_test.py", only=f"{GRADIENTS} or Attention or relu or ScaledDot"),
    Run("fft_test.py", only=f"{GRADIENTS} or testFftn"),
    Run("image_test.py", only=GRADIENTS),
    Run("eigh_test.py", only=GRADIENTS),
    Run("random_lax_test.py", only=GRADIENTS),
    Run("shard_map_test.py", only=OVER_A_MESH),
    Run("pjit_test.py", only=OVER_A_MESH),
    Run("sparse_test.py", only=GRADIENTS),
    Run("sparsify_test.py", only="CustomJVP"),
    Run("batching_test.py"),
    Run("debug_nans_test.py"),
    Run("debugging_primitives_test.py"),
    Run("generated_fun_test.py"),
    Run("experimental_rnn_test.py"),
    Run("hijax_test.py"),
    Run("jet_test.py"),
    Run("optimizers_test.py"),
    Run("x64_context_test.py"),
    Run("batching_test.py", MAPS),
    Run("lax_control_flow_test.py", MAPS),
    Run("lax_vmap_test.py", MAPS),
)

JAXPRS = "looks at the jaxpr of a derivative, or into JAX's own residuals; ours calls a program"
NOT_ASSOCIATIVE = "windows reduced by a difference, which depend on the order in which XLA does so"
TRACES = "counts how often a function is traced; ours may be traced once more"
WORDS = "both refuse, in other words than JAX's"
NUMBERS = "wants numbers of Python back; ours are arrays, as under jax.jit"
WORKS = "JAX refuses; here it has a derivative"
OF_VJP = "wants what jax.vjp's own object does with logs: with_logs"
HANDED_OVER = (
    "a mutable array from outside, or one that a call with rules is handed: docs/differences.md"
)
OTHERS_SAVED = (
    "wants cos(x) saved for the cotangent of a sine or a cosine; here it is x: docs/differences.md"
)
TRACEBACKS = "counts the lines of a traceback"
NO_LOWERING = "a primitive of the test's own without a lowering, or tokens: so not under jax.jit"
UNTRACED = "wants arrays or numbers in the function: JAX's own fails as well under jax.jit"
AS_JAX_UNDER_JIT = (
    "JAX's own fails as well where the function is under jax.jit, with the same words"
)
ONLY_LINEARIZE = (
    "a primitive of the test's own that has a rule for linearize alone: refused in words"
)
BARRIERS = "looks at the barrier of what is computed again, which has other operands here"
INTEGERS = "transposes a function of integers: refused in words"
ITS_TYPE = "the rule gives a cotangent of another type; here it gets that of the argument"
SAME_OBJECT = "wants a result to be the argument itself"
PREVENT_CSE = "prevent_cse=False of an argument of jax.checkpoint: here all have a barrier"
UNDER_JIT = (
    "a rule that closes over a value of jax.vmap or of the trace around it: docs/differences.md; "
    "JAX's own derivative fails as well where the function is under jax.jit"
)
REPLACED = "replaces the rule of a function that has been differentiated: its trace is kept"
FALSE_RULE = "the rule gives another type than the function; so JAX's own fails under jax.jit"
NOT_LINEAR = "a rule that is affine in its tangents, not linear: refused in words"
BATCHED = (
    "a jax.custom_vmap is told that all its arguments are batched, also those that only share "
    "a call with what is: docs/differences.md"
)
VALUE_OF_FWD = (
    "the rule is false on purpose: fwd gives another value than the function; JAX takes that of "
    "the function in a jax.checkpoint with optimize_remat, here it is that of fwd"
)

CUSTOM_RULES = (
    Known("custom_api_test.py::*::test_closed_over_tracers_error_message", WORDS, "pass the value"),
    Known("custom_api_test.py::*::test_nondiff_arg_hiding_jvp_tracer", WORDS, "pass the value"),
    Known("custom_api_test.py::*::test_jvp_rule_doesnt_return_pair_error_message", WORDS),
    Known("custom_api_test.py::*::test_closure_with_vmap2", UNDER_JIT, "LeakedValueError"),
    Known("custom_api_test.py::*::test_nondiff_arg_vmap_tracer", UNDER_JIT, "LeakedValueError"),
    Known("custom_api_test.py::*::test_bwd_closes_over_tracer", UNDER_JIT, "LeakedValueError"),
    Known("custom_api_test.py::*::test_fwd_closes_over_tracer", UNDER_JIT, "LeakedValueError"),
    Known("custom_api_test.py::*::test_hard_stuff2", FALSE_RULE, "where its function"),
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
    Known("custom_api_test.py::*", OF_VJP, "'VJP' object has no attribute"),
)

LOOPS_AND_SOLVERS = (
    Known("lax_control_flow_test.py::*::testSwitchResidualsMerge", JAXPRS, "values to unpack"),
    Known("lax_control_flow_test.py::*::testWhileGradError_*", WORKS, "ValueError not raised"),
    Known("lax_control_flow_test.py::*::test_scan_diff_of_print", JAXPRS, "call_module"),
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

ZERO_TO_ZERO = "the derivative of 0.0 ** 0.0 is 0 here, which JAX's test wishes for; JAX gives NaN"

OPS = (
    Known("lax_autodiff_test.py::*::testDot*Grad*", JAXPRS, "Precision.HIGHEST"),
    Known("lax_autodiff_test.py::*::testPowSecondDerivative", ZERO_TO_ZERO, "DESIRED: array(nan)"),
    Known("lax_autodiff_test.py::*::test_scatter_apply_*", WORKS, "NotImplementedError not raised"),
    Known(
        "lax_autodiff_test.py::*::testGatherTransposeCotangentDtype", ITS_TYPE, "dtype(bfloat16)"
    ),
    Known("lax_test.py::*::test_gather_with_asymmetric_dtype", ITS_TYPE, "dtype(float8_e4m3fn)"),
    Known("lax_test.py::*::test_select_jvp_complexity", JAXPRS, "has length of 1"),
    Known("lax_test.py::CompositeTest::test_composite_*", WORDS, "MissingRuleError"),
    Known("lax_test.py::*::testReduceWindowGeneralJVP*", NOT_ASSOCIATIVE, "Not equal to tolerance"),
    Known("lax_numpy_indexing_test.py::*::testIndexMulGradFails*", WORDS, "MissingRuleError"),
    Known(
        "lax_scipy_special_functions_test.py::*_log_ndtr_*",
        AS_JAX_UNDER_JIT,
        "AssertionError: (1, DebugInfo",
    ),
    Known("nn_test.py::*::testDotProductAttention*", AS_JAX_UNDER_JIT, "'F16_F16_F32' is not"),
    Known("nn_test.py::*::testReluGrad", JAXPRS, "1 not greater than"),
)

API_WORDS = (
    "bad_input",
    "grad_and_aux_error",
    "grad_bad_input",
    "grad_complex_result_errors",
    "grad_object_array_error",
    "grad_of_int_errors",
    "grad_without_enough_args_error_message",
    "holomorphic_grad_of_float_errors",
    "issue_871",
    "jacfwd_of_complex_errors",
    "jvp_mismatched_arguments",
    "jvp_non_tuple_arguments",
    "leak_checker_catches_linearize_tracer_escape",
    "linear_transpose_error",
    "linearize_aval_error",
    "vjp3_with_refs_aval_mismatch_errors",
    "vjp3_with_refs_tree_errors",
    "vjp_bad_cotangent_shape",
    "vjp_mismatched_arguments",
    "vjp_multiple_arguments_error_message",
    "vjp_too_many_args",
)

API = (
    *(Known(f"api_test.py::APITest::test_{name}", WORDS, "does not match") for name in API_WORDS),
    Known("api_test.py::*::test_grad_nonscalar_output_hint", WORDS, "not found in"),
    Known("api_test.py::*::test_grad_wrt_ref_arg_error", WORDS, "a mutable array"),
    Known("api_test.py::*::test_vjp3_ref_arg_needs_with_refs_errors", WORDS, "a mutable array"),
    Known("api_test.py::*::test_grad_of_jit_compilation_caching2", TRACES, "1 != 2"),
    Known("api_test.py::*::test_pmap_global_cache", TRACES, "XLA compilations"),
    Known("api_test.py::*::test_vmap_caching", TRACES, "10 != 5"),
    Known("api_test.py::*::test_deferred_primal_with_direct_linearize", NO_LOWERING, "my_sin_p"),
    Known("api_test.py::*::test_unimplemented_interpreter_rules", NO_LOWERING, "'foo'"),
    Known("api_test.py::*::test_grad_of_token_consuming_primitive", NO_LOWERING, "AbstractToken"),
    Known("api_test.py::Remat*::test_remat_*", NO_LOWERING, "'add_one'"),
    Known("api_test.py::*::test_structured_residuals_*", ONLY_LINEARIZE, "MissingRuleError"),
    Known("api_test.py::*::test_leak_checker_remat3_*", UNTRACED, "core.Tracer"),
    Known("api_test.py::*::test_float0_reshape", UNTRACED, "dtype promotion"),
    Known("api_test.py::*::test_linear_transpose_integer", INTEGERS, "DerivativeTypeError"),
    Known("api_test.py::Remat*::test_excess_precision_hell", ITS_TYPE, "dtype(bfloat16)"),
    Known("api_test.py::Remat*::test_remat_basic*", TRACES, "0 != 1"),
    Known("api_test.py::Remat*::test_name_stack_annotation", JAXPRS, "0 != 1"),
    Known(
        "api_test.py::Remat*::test_remat_checkpoint_dots_*side_*", JAXPRS, "AssertionError: 0 !="
    ),
    Known("api_test.py::Remat*::test_remat_offload_*_jaxpr", JAXPRS, "AssertionError: 0 !="),
    Known("api_test.py::Remat*::test_*_residual_forwarding", JAXPRS, "has length of "),
    Known("api_test.py::Remat*::test_custom_vjp_with_checkpoint_name_*", JAXPRS, "call_module["),
    Known("api_test.py::Remat*::test_remat_partial_cse_prevention*", PREVENT_CSE, "Regex"),
    Known("api_test.py::Remat*::test_remat_*cse_prevention*", BARRIERS, "Regex didn't match"),
    Known("api_test.py::Remat*::test_remat_of_*_funky_custom_jvp*", JAXPRS, "AssertionError: 0 !="),
    Known("api_test.py::Remat*::test_remat_*", JAXPRS, "'PushForward' object has no attribute"),
    Known("api_test.py::Remat*::test_remat_*", JAXPRS, "call_module["),
    Known("api_test.py::Remat3Test::test_remat_custom_policy_save_cos", JAXPRS, "AssertionError"),
    Known("api_test.py::*::test_remat_residual_logging", JAXPRS, "False is not true"),
    Known("api_test.py::DCETest::*", JAXPRS, "Lists differ"),
    Known("api_test.py::DCETest::*", JAXPRS, "call_module["),
    Known("api_test.py::*", OF_VJP, "'VJP' object has no attribute"),
    Known("api_test.py::InputSavedVJPTest::test_fsdp_error", WORDS, "does not match"),
    Known("api_test.py::InputSavedVJPTest::test_basic_opaque_*", OTHERS_SAVED, "[] is not true"),
    Known("api_test.py::InputSavedVJPTest::test_*unused_*", OTHERS_SAVED, "not an instance of"),
    Known("api_test.py::TracebackTest::*", TRACEBACKS, " != 9"),
)

MUTABLE_ARRAYS = (
    Known("mutable_array_test.py::*", HANDED_OVER, "is handed a mutable array"),
    Known("mutable_array_test.py::*::test_argument_aliases_*", WORDS, "only one reference to a"),
    Known("mutable_array_test.py::*::test_slicing_with_vjp3", WORDS, "there is a object"),
)

SUMMED = (
    "the cotangent of what is reduced or unreduced has the type of any other: docs/differences.md"
)
PLACED = "a batch of a program with shardings lies where XLA puts it"

OVER_MESHES = (
    Known("shard_map_test.py::*", SUMMED, "reduced={'"),
    Known("pjit_test.py::*", SUMMED, "reduced={'"),
    Known("pjit_test.py::*_unreduced_*", SUMMED, "frozenset() != {'x'}"),
    Known("pjit_test.py::*::test_reduced_reshard_unreduced_bwd*", SUMMED, "mismatch"),
    Known("pjit_test.py::*::test_fsdp_pipeline_grad", SUMMED, "ShardingTypeError"),
    Known("pjit_test.py::*::test_unreduced_einsum_add_basic", JAXPRS, "list index out of range"),
    Known("pjit_test.py::*::test_vmap_of_jvp_pjit_*", PLACED, "SingleDeviceSharding"),
    Known("shard_map_test.py::*", JAXPRS, "call_module["),
    Known("shard_map_test.py::*::test_fan*", JAXPRS, "values to unpack"),
    Known("shard_map_test.py::*_self_transposes", JAXPRS, "+ psum_invariant"),
    Known("shard_map_test.py::*_transpose_error", WORKS, "ValueError not raised"),
)

IN_BATCHES = (
    Known("batching_test.py::*::testNegativeAxes", WORDS, "axis -4 is out of bounds", (MAPS,)),
    Known("batching_test.py::*::testNonJaxTypedOutput", WORDS, "valid JAX type", (MAPS,)),
    Known(
        "lax_control_flow_test.py::*::test_cond_vmap_forwarding_doesnt_promote",
        SAME_OBJECT,
        "assert Array",
        (MAPS,),
    ),
)

LOOKED_INTO = (
    "looks into jitted functions, and has no rule for the call of a program: docs/differences.md"
)
OF_OWN_TYPES = "values of types of the test's own are refused: docs/differences.md"
ALONE = "a collective along the axis of a vmap around the trace is refused: docs/differences.md"
KEPT_EFFECTS = "an effect that the policy of a checkpoint keeps happens again: docs/differences.md"

IN_OTHER_FILES = (
    Known("batching_test.py::*", ALONE, "differentiate the batch"),
    Known("debug_nans_test.py::*::testGrad*", WORDS, "in a compiled module"),
    Known("debugging_primitives_test.py::*::test_remat_of_debug_print*", KEPT_EFFECTS, "y: 3.0"),
    Known("hijax_test.py::*", OF_OWN_TYPES, "hand on the arrays that it is made of"),
    Known("hijax_test.py::*::test_custom_vjp_plumbing?", OF_OWN_TYPES, "in the vjp rule of"),
    Known("hijax_test.py::*::test_hijax_primitive_under_remat", TRACES, "_jvp_execution_count"),
    Known("jet_test.py::*", LOOKED_INTO, "call_module"),
    Known("sparsify_test.py::*", LOOKED_INTO, "call_module"),
    Known("x64_context_test.py::*::test_custom_*", AS_JAX_UNDER_JIT, "p rule of `f`"),
)

KNOWN = (
    *(OPS + CUSTOM_RULES + LOOPS_AND_SOLVERS + API),
    *(MUTABLE_ARRAYS + OVER_MESHES + IN_BATCHES + IN_OTHER_FILES),
)
