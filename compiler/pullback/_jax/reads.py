"""All that pullback reads of JAX beyond its public names, and what for.

`tests/project/test_reads.py` compares these tables with the sources of the gates, both ways, and
looks up the names in the installed JAX: with a new JAX it says first what is gone
(docs/next_jax.md).
Modules of `jaxlib.mlir`, MLIR's own bindings, are not listed name by name.
"""

from __future__ import annotations

from typing import Any

NAMES: dict[str, dict[str, str]] = {
    "jax._src.api": {
        "NotNeeded": "what stands in a map of cotangents for an argument; new in 0.11",
        "NotSaveable": "the same, for one that is not saved; new in 0.11",
    },
    "jax._src.callback": {"_IOEffect": "the effect of io_callback"},
    "jax._src.checkify": {
        "checkify_jaxpr": "look into the body of a linear map",
        "default_checkify_rule": "what a call of a program does under checkify",
        "error_checks": "register that",
    },
    "jax._src.config": {
        "ExplicitX64Mode": "may values have 64 bits where the option is off",
        "State": "tell options from other settings",
        "UserContext": "enter a setting that is no option",
        "_check_vma": "does shard_map check how values vary",
        "config_states": "options by name",
        "eager_constant_folding": "switch it off where one call is traced",
        "explicit_x64_dtypes": "the option of ExplicitX64Mode",
        "trace_context": "values of all settings that tracing depends on",
        "trace_context_names": "names of these",
        "traceback_filtering": "keep the frames of JAX in a traceback",
    },
    "jax._src.core": {
        "InternalMutableArrayEffect": "the effect of making a mutable array",
        "NamedAxisEffect": "named axes that an equation works along",
        "auto_insert_reshard": "let operands vary along the same axes of a mesh",
        "escaped_tracer_error": "JAX's own words for a tracer that has left its trace",
        "eval_trace": "is nothing being traced",
        "evaluate_shape": "sizes of symbolic dimensions where JAX lowers",
        "extend_axis_env_nd": "name the axes that a rule was traced under",
        "get_axis_env": "named axes here",
        "mem_space_to_kind": "the memory of a result of the entry",
        "no_axis_name": "has the axis of a vmap a name",
        "pytype_aval_mappings": "is a value one that JAX knows, before its type is asked for",
        "physical_aval": "the words of PRNG keys in types",
        "shaped_abstractify": "the type of an abstract argument",
        "trace_ctx": "the current trace",
        "unsafe_get_trace_stack": "is the trace of a tracer going on",
    },
    "jax._src.custom_derivatives": {
        "_handle_consts_in_bwd": "the layer on a backward rule that adds no derivative",
    },
    "jax._src.debugging": {"debug_effect": "stands for an ordered effect"},
    "jax._src.dtypes": {"default_int_dtype": "the counter of a loop"},
    "jax._src.effects": {
        "ordered_effects": "which effects are ordered",
        "remat_allowed_effects": "which effects a checkpoint may have",
    },
    "jax._src.export.shape_poly": {
        "ShapeEvaluator": "evaluate symbolic sizes",
        "all_dim_vars": "symbolic dimensions in types",
        "solve_dim_vars": "find their sizes from arguments",
    },
    "jax._src.flattree": {
        "nones": "say that operands of a scan are lifted; new in 0.11",
        "pack": "the same; new in 0.11",
    },
    "jax._src.interpreters.ad": {
        "CustomVJPException": "JAX's error for a derivative by what a function closes over",
    },
    "jax._src.interpreters.batching": {
        "AxisData": "name and size of the axis of a vmap in a rule",
        "broadcast_batcher": "is a primitive elementwise",
        "fancy_primitive_batchers": "batching rules, of JAX's primitives and of ours",
        "primitive_batchers": "the same",
        "vectorized_batcher": "is a primitive elementwise",
    },
    "jax._src.interpreters.mlir": {
        "COLLECTIVE_CHANNEL_ID": "number channels of collectives as JAX does",
        "LoweringParameters": "lower a jaxpr into a module of ours",
        "ModuleContext": "the same",
        "ShapePolyLoweringState": "the same, with symbolic sizes",
        "TokenSet": "tokens of ordered effects",
        "global_thread_pool": "threads of contexts of ours",
        "_lowerings": "the lowering of a loop or call; has a primitive one",
        "_platform_specific_lowerings": "the same of one platform",
        "aval_to_ir_type": "the type of a scan's result",
        "compare_hlo": "the condition of a loop",
        "ir_constant": "a constant in a loop",
        "ir_tree_registry": "flatten operands, tokens among them",
        "lower_called_computation": "lower the function that a call of ours calls",
        "lower_jaxpr_to_fun": "lower a jaxpr to a function",
        "lower_with_sharding_in_types": "the sharding of a result of a module",
        "register_lowering": "lower primitives of ours",
    },
    "jax._src.interpreters.partial_eval": {
        "SaveableType": "does a policy of a checkpoint save a result",
        "convert_constvars_jaxpr": "constants of a jaxpr become arguments",
        "custom_partial_eval_rules": "split a call of a program where some operands are known",
        "dce_jaxpr": "which arguments results depend on",
        "ensure_enum": "what a policy answers, as one class",
        "partial_eval_jaxpr_custom_rules": "the same split in a checkpoint",
        "partial_eval_jaxpr_nounits": "which results depend on arguments",
        "trace_to_jaxpr_dynamic": "trace a function without the overhead of jit",
    },
    "jax._src.lax.lax": {"_convert_element_type": "make the type of an array weak"},
    "jax._src.lax.windowed_reductions": {
        "_select_and_scatter_add": "a primitive without a public function",
    },
    "jax._src.lib.jax_mlir_ext": {"inlined_func_call": "inline a call in MLIR"},
    "jax._src.lib.xla_client": {
        "DeviceList": "where an executable runs",
        "custom_call_targets": "which custom calls a platform has",
    },
    "jax._src.linear_util": {
        "EqualStore": "where a transformation leaves a second result: no part of a rule",
        "Store": "the same",
        "wrap_init": "make a rule of a function of ours",
    },
    "jax._src.mesh": {"get_concrete_mesh": "the mesh that jax.set_mesh has set"},
    "jax._src.pallas.hlo_interpreter": {
        "pallas_call_hlo_interpret": "a kernel as loops, as with interpret=True",
    },
    "jax._src.pallas.primitives": {"uninitialized_value": "a value that a kernel has not written"},
    "jax._src.sharding_impls": {
        "SPMDAxisContext": "lower the body of a shard_map",
        "ShardingContext": "lower for one device",
        "UNSPECIFIED": "a jitted call that says nothing of shardings",
    },
    "jax._src.source_info_util": {
        "_source_info_context": "trace a rule with its own lines",
        "is_user_filename": "is a file the user's",
        "user_frames": "the user's lines in a traceback",
    },
    "jax._src.state": {
        "ReadEffect": "effects of mutable arrays",
        "RefEffect": "the same",
    },
    "jax._src.state.discharge": {"discharge_state": "mutable arrays become values"},
    "jax._src.traceback_util": {
        "api_boundary": "hide frames of ours where JAX hides its own",
        "register_exclusion": "say which frames these are",
    },
    "jax._src.tree_util": {"_registry": "the fields of a registered dataclass"},
    "jax._src.util": {
        "Unhashable": "a box around an argument of a rule",
        "cache": "a cache that JAX clears with its own",
        "weakref_cache_key_types": "hold a module by weak references in JAX's caches",
    },
    "jax.interpreters.ad": {
        "UndefinedPrimal": "ask a transpose rule for the cotangent of an operand",
        "Zero": "symbolic zeros",
        "add_tangents": "add those by some operands to those by others",
        "instantiate_zeros": "as arrays",
        "is_undefined_primal": "is an operand one to transpose by",
        "primitive_jvps": "rules of primitives, JAX's and ours",
        "primitive_transposes": "the same",
    },
    "jax.interpreters.batching": {
        "fancy_primitive_batchers": "the batching rule of a linear map, which is told the axis",
        "primitive_batchers": "the batching rule of a call of a program",
    },
    "jax.interpreters.mlir": {
        "ir_constant": "a constant in a module",
        "aval_to_ir_type": "types of a call",
        "dtype_to_ir_type": "types of elements",
        "lower_fun": "lower a linear map as its body",
        "make_ir_context": "a fresh MLIR context, up to 0.10",
        "register_lowering": "lower the call of a program",
    },
    "jaxlib": {"__version__": "what a file was written with"},
    "jaxlib.lapack": {"prepare_lapack_call": "load LAPACK before a loaded module calls it"},
}
"""Private names, by module."""

ATTRIBUTES = {
    "_apply_primitive": "report a program as one step where jax_debug_nans looks",
    "_consts": "of a trace: the tracers that it closes over",
    "_explicit_constraints": "of a scope: the user's constraints on symbolic dimensions",
    "_impl": "of the dtype of PRNG keys: which generator",
    "_in_tree": "of a trace: the structure of its arguments, without making these",
    "_line_info": "of a tracer: where it was made",
    "_lowering": "of a lowered function: its host callbacks",
    "_meta_tys_flat": "of a trace: types with shardings",
    "_params": "of a trace: the mesh that was set",
    "_rules": "of a dtype: has it tangents of its own",
    "_trace": "of a tracer: is it going on",
}
"""Private attributes of objects of JAX."""

PARAMETERS = {
    "_prim": "call_hi_primitive: the object with the rules",
    "accuracy": "tanh: which formula it is lowered to",
    "axis_name": "ppermute: the axes",
    "body_jaxpr": "while: the body",
    "body_nconsts": "while: how many operands the body closes over",
    "branches": "cond: the branches",
    "bwd": "custom_vjp_call, custom_lin: the backward rule",
    "call": "custom_partitioning: the function",
    "call_jaxpr": "custom_jvp_call, custom_vjp_call: the function",
    "callee": "linear_call: the function",
    "check_vma": "shard_map: does it check how values vary",
    "collective_axes": "run_scoped: a kernel's scope over several cores",
    "cond_jaxpr": "while: the condition",
    "cond_nconsts": "while: how many operands the condition closes over",
    "const_lengths": "custom_linear_solve: how many operands each function closes over",
    "ctx_mesh": "of a trace: the mesh that was set",
    "dimensions": "reduce: the axes",
    "exported": "call_exported: the file",
    "fft_lengths": "fft: how many axes it has",
    "ft_in": "scan: which operands are lifted, carried, mapped; from 0.11",
    "fwd": "custom_gradient in hijax: the forward rule",
    "fwd_jaxpr": "remat_opt: the function",
    "fwd_jaxpr_thunk": "custom_vjp_call: the forward rule",
    "in_zeros": "custom_lin: which tangents are zero",
    "interpret": "pallas_call: is the kernel lowered to loops",
    "jaxpr": "bodies of jit, scan, reduce, checkpoint",
    "jaxprs": "custom_linear_solve: its functions",
    "jvp_jaxpr_fun": "custom_jvp_call: the rule",
    "length": "scan: the trip count",
    "mesh": "shard_map: the mesh",
    "name": "name: that of a value",
    "newly_manual_axes": "shard_map: its axes",
    "num_callee_consts": "linear_call: how many operands the function closes over",
    "num_carry": "scan: how many operands are carried, up to 0.10",
    "num_consts": "rules, scan: how many operands the function closes over",
    "num_res": "linear_call, custom_lin: how many operands are residuals",
    "out_trees": "custom_vjp_call: structures of results and residuals",
    "padding_config": "pad: of which no inverse is needed",
    "pin": "new_ref: a mutable array that stays where it is",
    "prim": "a hijax call under vmap: the mapped one",
    "remat_rules": "custom_vjp_call in hijax: the rules in a checkpoint",
    "residuals_tree": "call_hi_primitive_linearized: its residuals",
    "reverse": "scan: does it begin at the end",
    "sharding": "sharding_constraint: the mesh",
    "symbolic_zeros": "rules: do they see symbolic zeros",
    "traced": "a function with rules in hijax: the function",
    "transpose_thunk": "linear_call: the rule",
    "unroll": "scan: how many steps at once",
    "y": "integer_pow: the exponent",
}
"""Parameters of equations, by key: of which primitive, and what."""

OURS = frozenset({"backward", "forward", "function", "handle", "kept", "key", "rules"})
"""Parameters of equations of primitives of ours."""

VARIABLES = {
    "axis_data": "a batched backward rule: the axis of the vmap",
    "bwd": "a backward rule after dead code elimination: the whole rule",
    "cells": "a memoized function: results by arguments",
    "fn": "a memoized function: the function",
    "fun": "the forward rule of a custom_gradient: the function, for its name",
    "fwd": "a traced forward rule: the user's, with transformations",
    "fwd_jaxpr_thunk": "a forward rule that is evaluated again: the rule before",
    "jvp": "a traced jvp rule: the user's, with transformations",
    "jvp_jaxpr_fun": "a jvp rule that is evaluated again: the rule before",
    "num_consts": "a rule that is evaluated again: how many operands are lifted",
    "used_outs": "a rule after dead code elimination: which results are used",
}
"""Variables that functions of JAX around a user's rule close over, by name."""

TEXTS = {
    "CheckpointName": "a name for a value",
    "CheckpointNameFwd": "the same, as jax.checkpoint sees it",
    "CustomJVPTraced": "a custom_jvp function",
    "CustomVJPTraced": "a custom_vjp function",
    "RematTraced": "a checkpoint",
    "VmapOf": "a call that jax.vmap has mapped, in 0.10",
    "axis_frame": "the function that fails where a kernel has no grid",
    "jax._src.hijax": "the module of hijax calls",
    "jax._src.pallas.core": "the module of axis_frame",
    "register_dataclass.": "is a class registered as a dataclass",
    "wrapped_fun": "the function that custom_gradient puts around a user's",
}
"""Name what is compared as text: classes of hijax calls, modules, functions."""


def parameter(equation: Any, name: str) -> Any:
    """Return a parameter of an equation, one of those in `PARAMETERS`."""
    assert name in PARAMETERS, name
    return equation.params[name]
