"""Wrong versions of rules and drivers, and the tests that must notice.

Each is an expression or a statement of one function, and what stands in its place. `places` finds
it by the function's name and by syntax: it may move to another module, and be laid out differently.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """One wrong version.

    Attributes:
      where: a function of the compiler, as `module:name` or `module:Class.name`, the module below
        `pullback`; with no name, what a module has outside of functions.
      old: an expression, a statement or a keyword argument that is there exactly once; `...` is any
        expression.
      new: what is put in its place.
      tests: the tests of which at least one must fail.
    """

    where: str
    old: str
    new: str
    tests: tuple[str, ...]


def rule(*cases: str) -> tuple[str, ...]:
    """Records of tests/rules."""
    return tuple(f"tests/rules/test_rules.py::test_rule[{case}]" for case in cases)


def rules_of_users(*cases: str) -> tuple[str, ...]:
    """Functions with rules, through the drivers."""
    return tuple(f"tests/passes/test_differentiation.py::test_rules[{case}]" for case in cases)


def flow(*cases: str) -> tuple[str, ...]:
    """Loops and branches, through the drivers."""
    return tuple(
        f"tests/passes/test_differentiation.py::test_control_flow[{case}]" for case in cases
    )


FORMULAS = (
    Mutant(
        "rules.elementwise:_quotient_vjp",
        "neg(_by_divisor(op, ct))",
        "_by_divisor(op, ct)",
        rule("stablehlo.divide"),
    ),
    Mutant(
        "rules.elementwise:_by_divisor",
        "not _has_room(op.result_type)",
        "False",
        ("tests/autodiff/test_pending.py::test_a_small_divisor_of_zero_in_half_precision",),
    ),
    Mutant(
        "rules.elementwise:_by_repeated_vjp",
        "return ct.through(_quotient_vjp(op, [ct.ct]))",
        "ct = ct.ct",
        ("tests/autodiff/test_pending.py::test_what_is_not_taken_has_no_derivative",),
    ),
    Mutant(
        "rules.elementwise:_by_what_is_divided",
        "is_repeated and is_here and _has_room(divisor.type)",
        "is_repeated and _has_room(divisor.type)",
        (
            "tests/passes/test_captured.py::"
            "test_a_repeated_divisor_whose_source_has_no_cotangent_in_a_branch",
        ),
    ),
    Mutant(
        "rules.elementwise:_by_repeated_vjp",
        "div(unbroadcast(repeat, mul(quotient, op.lhs)), y)",
        "unbroadcast(repeat, mul(quotient, op.lhs))",
        rule("stablehlo.divide-repeated-divisor"),
    ),
    Mutant(
        "rules.elementwise:Subtract.vjp",
        "neg(ct)",
        "ct",
        rule("stablehlo.subtract"),
    ),
    Mutant(
        "rules.elementwise:",
        "div(0.5, op.result)",
        "div(1.0, op.result)",
        rule("stablehlo.sqrt"),
    ),
    Mutant(
        "rules.elementwise:",
        "neg(sin(op.x))",
        "sin(op.x)",
        rule("stablehlo.cosine"),
    ),
    Mutant(
        "rules.elementwise:",
        "mul(add(op.result, 1.0), sub(1.0, op.result))",
        "mul(add(op.result, 1.0), sub(1.0, op.x))",
        rule("stablehlo.tanh"),
    ),
    Mutant(
        "rules.elementwise:",
        "mul(op.result, sub(1.0, op.result))",
        "op.result",
        rule("stablehlo.logistic"),
    ),
    Mutant(
        "rules.elementwise:_share",
        'select(compare("EQ", mine, other), full_like(mine, 0.5), whole)',
        "whole",
        rule("stablehlo.maximum-edges"),
    ),
    Mutant(
        "rules.elementwise:_power_base",
        'compare("EQ", y, 0.0)',
        'compare("NE", x, 0.0)',
        rule("stablehlo.power-integer-exponent"),
    ),
    Mutant(
        "rules.elementwise:_chosen",
        'compare("GT", x, low)',
        'compare("GE", x, low)',
        rule("stablehlo.clamp-edges"),
    ),
    Mutant(
        "rules.elementwise:_signed",
        'compare("GE", op.x, 0.0)',
        'compare("GT", op.x, 0.0)',
        rule("stablehlo.abs-edges"),
    ),
    Mutant(
        "rules.elementwise:Imag.vjp",
        "neg(_real_one(op, cts[0]))",
        "_real_one(op, cts[0])",
        rule("stablehlo.imag-complex"),
    ),
    Mutant(
        "rules.elementwise:Complex.vjp",
        "neg(build.imag(ct))",
        "build.imag(ct)",
        rule("stablehlo.complex"),
    ),
    Mutant(
        "rules.chlo:",
        "2 / math.sqrt(math.pi)",
        "1 / math.sqrt(math.pi)",
        rule("chlo.erf"),
    ),
    Mutant(
        "rules.reduction:_extremum_vjp",
        "winners.average(ct)",
        "ct",
        rule("stablehlo.reduce-ties"),
    ),
    Mutant(
        "rules.reduction:_sum_vjp",
        "build.total(ct) if op.active[1] else None",
        "ct if op.active[1] and not build.rank(ct) else None",
        rule("stablehlo.reduce-add-init"),
    ),
    Mutant(
        "rules.products:_plan",
        "zip(contract[other], contract[mine], strict=True)",
        "zip(sorted(contract[other]), contract[mine], strict=True)",
        rule("stablehlo.dot_general-crossed-contraction"),
    ),
    Mutant(
        "ir.build:full",
        "value or sign_of(value)",
        "bool(value)",
        rule("stablehlo.maximum-edges"),
    ),
    Mutant(
        "rules.shape:_unbroadcast",
        "None if in_order else tuple(by_position.index(i) for i in left)",
        "None and tuple(by_position.index(i) for i in left)",
        rule("stablehlo.broadcast_in_dim-permuted"),
    ),
    Mutant(
        "rules.products:_emission",
        "None if plan.order == tuple(range(len(dims))) else plan.order",
        "None",
        rule("stablehlo.dot_general-crossed-contraction"),
    ),
    Mutant(
        "rules.shape:pad",
        "build.sub(ct, inside)",
        "ct",
        rule("stablehlo.pad"),
    ),
    Mutant(
        "rules.shape:concatenate",
        "offset += size",
        "pass",
        rule("stablehlo.concatenate"),
    ),
    Mutant(
        "autodiff.slices:in_place.update",
        "build.add(here, ct)",
        "ct",
        rule("stablehlo.slice-overlapping"),
    ),
    Mutant(
        "rules.shape:dynamic_update_slice",
        "build.dynamic_update_slice(ct, blank, starts)",
        "ct",
        rule("stablehlo.dynamic_update_slice"),
    ),
    Mutant(
        "rules.indexing:gather.update",
        "indexing.clamp(op.operand(1), shape, dims, sizes)",
        "op.operand(1)",
        rule("stablehlo.gather-clip"),
    ),
    Mutant(
        "rules.indexing:_Scatter.gather_inside",
        "found if mask is None else select(mask, found, None)",
        "found",
        rule("stablehlo.scatter-add", "stablehlo.scatter-add_windows_partly_outside"),
    ),
    Mutant(
        "ir.types:counting",
        "t.bits >= 32",
        "t.bits >= 8",
        ("tests/rules/test_half_precision.py::test_many_elements_that_tie_have_equal_shares",),
    ),
    Mutant(
        "rules.windows:_chosen",
        'size if of_equals == "LT" else -1',
        "size",
        rule("stablehlo.select_and_scatter-worst_GT", "stablehlo.select_and_scatter-worst_LT"),
    ),
    Mutant(
        "rules.indexing:_replace_transpose",
        "select(survives, ct, None)",
        "ct",
        rule("stablehlo.scatter-replace"),
    ),
    Mutant(
        "rules.linalg:_halve_diagonal",
        "mul(add(triangle(x, lower=True), strict), 0.5)",
        "triangle(x, lower=True)",
        rule("stablehlo.cholesky-lower_3_3"),
    ),
    Mutant(
        "rules.linalg:TriangularSolve.vjp",
        "neg(ct_a)",
        "ct_a",
        rule("stablehlo.triangular_solve-left_lower_transpose"),
    ),
    Mutant(
        "rules.linalg:_multiplicity",
        'once = build.or_(once, build.compare("EQ", place, half - 1))',
        "pass",
        rule("stablehlo.fft-real_even", "stablehlo.fft-inverse_real_even"),
    ),
    Mutant(
        "rules.einsum:_product",
        "label in result",
        "label in result and label == both[0]",
        rule("stablehlo.einsum-elementwise"),
    ),
    Mutant(
        "rules.einsum:_where_equal",
        'build.compare("EQ", build.iota(type, i), build.iota(type, j))',
        'build.compare("GE", build.iota(type, i), build.iota(type, j))',
        rule("stablehlo.unary_einsum-trace"),
    ),
    Mutant(
        "rules.indexing:_index_select",
        "build.info(indices.type).bits == 64 and shape[dim] < 2**32 - 1",
        "build.info(indices.type).bits == 128",
        rule("stablehlo.torch_index_select-64-bit"),
    ),
    Mutant(
        "rules.dynamic:_resized",
        "size is not None",
        "size is None",
        rule("stablehlo.set_dimension_size-vector", "stablehlo.set_dimension_size-back"),
    ),
    Mutant(
        "ir.bounds:inside",
        'build.compare("LT", index, build.broadcast_in_dim(size, shape, ()))',
        'build.compare("LE", index, build.broadcast_in_dim(size, shape, ()))',
        rule("stablehlo.set_dimension_size-vector"),
    ),
    Mutant(
        "rules.chlo_scan:_loop",
        "loop_carries.read(x, i)",
        "loop_carries.read(x, build.integer(0, i))",
        rule("chlo.scan-recurrence"),
    ),
    Mutant(
        "frontend.rewrites.negative_powers:_reciprocal_power_jvp",
        "-n",
        "-n - 1",
        (
            "tests/frontend/test_native.py::test_derivatives_of_a_reciprocal_power_overflow_where_those_of_jax_do",
        ),
    ),
    Mutant(
        "frontend.rewrites.reduce_as_fold:as_fold.fold",
        "elementwise(*inits, *[x[0] for x in xs])",
        "[x[0] for x in xs]",
        (
            "tests/frontend/rewrites/test_reduce_as_fold.py::test_a_reduction_has_derivatives_in_both_modes_and_in_a_file",
        ),
    ),
    Mutant(
        "frontend.rewrites.reduce_as_fold:_combined",
        "(0, 1)",
        "(1, 0)",
        (
            "tests/frontend/rewrites/test_reduce_as_fold.py::test_a_reduction_has_derivatives_in_both_modes_and_in_a_file",
        ),
    ),
)

LIBRARY_CALLS = "tests/files/jax_export/test_match_library_calls.py"

DRIVERS = (
    Mutant(
        "autodiff.pending:Masked.within",
        "reversed(self.masks[count:])",
        "self.masks[:0]",
        ("tests/autodiff/test_pending.py::test_what_is_not_taken_has_no_derivative",),
    ),
    Mutant(
        "autodiff.pending:added",
        "len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)))",
        "0 * len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)))",
        ("tests/autodiff/test_pending.py::test_what_is_not_taken_has_no_derivative",),
    ),
    Mutant(
        "autodiff.reverse:Reverse.run",
        "masked, ct = ct, ct.ct",
        "ct = ct.emit()",
        ("tests/autodiff/test_pending.py::test_what_is_not_taken_has_no_derivative",),
    ),
    Mutant(
        "autodiff.reverse:Reverse._run_rule",
        "not self.linear",
        "False",
        (
            "tests/autodiff/test_user_rules.py::test_a_rule_runs_whose_cotangents_another_rule_leaves_out",
        ),
    ),
    Mutant(
        "autodiff.cotangent_reach:reached",
        "results if is_custom_vjp(op.operation) else absent",
        "results",
        (
            "tests/autodiff/test_user_rules.py::test_a_rule_runs_whose_cotangents_another_rule_leaves_out",
        ),
    ),
    Mutant(
        "files.jax_export.compare_ops:Reading.matches",
        "self.alike(v.owner) != step.alike",
        "v.owner.name != step.alike[0]",
        ("tests/files/jax_export/test_match_expansions.py::test_what_differs_in_one_step_stays",),
    ),
    Mutant(
        "files.jax_export.compare_ops:Reading.matches",
        "self._are_same(given.setdefault(key, v), v)",
        "given.setdefault(key, v) is not None",
        ("tests/files/jax_export/test_match_expansions.py::test_what_differs_in_one_step_stays",),
    ),
    Mutant(
        "files.jax_export.match_library_calls:_put_back_qr",
        "not _shows_r(reflectors, makes_q)",
        "_shows_r is None",
        (LIBRARY_CALLS,),
    ),
    Mutant(
        "program.library_routines:_svd_with_v",
        "jnp.conj(jnp.swapaxes(vh, -1, -2))",
        "jnp.swapaxes(vh, -1, -2)",
        (f"{LIBRARY_CALLS}::test_singular_vectors_as_routines_for_gpus_give_them",),
    ),
    Mutant(
        "program.library_routines:_svd_on_gpu",
        '{1: s, 2: vh, 3: u} if options["transposed"] else {1: s, 2: u, 3: vh}',
        "{1: s, 2: u, 3: vh}",
        (f"{LIBRARY_CALLS}::test_singular_vectors_as_routines_for_gpus_give_them",),
    ),
    Mutant(
        "files.jax_export.match_library_calls:_shows_columns",
        "_is_leading_part(user) and _limit(user, dim) <= count",
        "_is_leading_part(user)",
        (f"{LIBRARY_CALLS}::test_what_has_no_derivative_on_gpus",),
    ),
    Mutant(
        "files.jax_export.match_library_calls:_called",
        'home_of(target_of(call) or "")',
        '"cpu"',
        (LIBRARY_CALLS,),
    ),
    Mutant(
        "frontend.rules.batched_rules:axes_of_results",
        "len(each) > 1",
        "False",
        ("tests/frontend/rules/test_batched_rules.py::test_an_axis_of_the_batch_that_has_a_name",),
    ),
    Mutant(
        "_jax.batch_axes:_Batch._reshaped",
        "order.index(place)",
        "place",
        ("tests/_jax/test_batch_axes.py",),
    ),
    Mutant(
        "_jax.batch_axes:_common",
        "frozenset.intersection(*known)",
        "known[0]",
        (
            "tests/frontend/rules/test_batched_rules.py::test_rules_whose_batch_lies_along_another_axis",
        ),
    ),
    Mutant(
        "frontend.rules.batched_rules:_distinct",
        "all(known is None or place in known for place, known in pairs)",
        "True",
        (
            "tests/frontend/rules/test_batched_rules.py::test_rules_whose_batch_lies_along_another_axis",
        ),
    ),
    Mutant(
        "frontend.rules.trace_rule:vjp_rule.backward",
        "cts = {i: axes[i].to_rule(ct) for i, ct in cts.items()}",
        "pass",
        (
            "tests/frontend/rules/test_batched_rules.py::test_rules_whose_batch_lies_along_another_axis",
        ),
    ),
    Mutant(
        "frontend.rules.batched_rules:check_shared_arguments",
        "shared and arguments",
        "False",
        ("tests/program/test_batches.py",),
    ),
    Mutant(
        "frontend.rules.batched_rules:check_shared_results",
        "raise _counted_for_each(rule, i)",
        "pass",
        ("tests/program/test_batches.py",),
    ),
    Mutant(
        "frontend.rules.result_layouts:_Numbers._results_of",
        "equation.primitive, tuple(operands), shapes, params",
        "tuple(operands), shapes",
        ("tests/frontend/rules/test_result_layouts.py",),
    ),
    Mutant(
        "program.derivation:_dependence",
        "(block.arguments[i] for i in unknown)",
        "(block.arguments[i] for i in list(unknown)[1:])",
        (
            "tests/api/test_program_in_jax.py::test_tangents_that_jax_knows_stand_beside_linear_ones",
        ),
    ),
    Mutant(
        "program.library_routines:",
        're.compile(r"([01]),1,\\d+,[\\d.e-]+")',
        're.compile(r"([01]),[01],\\d+,[\\d.e-]+")',
        (LIBRARY_CALLS,),
    ),
    Mutant(
        "program.provenance:make",
        "lowered and lowered.after(stages)",
        "lowered",
        ("tests/program/test_platform_variants.py::test_derivatives_are_of_where_they_run",),
    ),
    Mutant(
        "program.provenance:Fits.check",
        "_called(lowered.after(self.second).module) != _called(self.linear.module)",
        "lowered is None",
        (
            "tests/program/test_platform_variants.py::test_half_a_derivative_is_not_run_where_it_would_be_another",
        ),
    ),
    Mutant(
        "frontend.rules.rule_table:RuleTable.for_platform",
        "table._checked_axes, table.settings = self._checked_axes, self.settings",
        "table._checked_axes = self._checked_axes",
        ("tests/program/test_platform_variants.py::test_the_settings_are_those_of_the_trace",),
    ),
    Mutant(
        "rules.calls.derivative_ops:_batch",
        "own is None and not is_ours",
        "name is None",
        ("tests/files/test_high_level.py",),
    ),
    Mutant(
        "program.library_routines:is_laid_out",
        "len(expected) == rank and by_columns",
        "len(expected) == rank and by_columns is None",
        (LIBRARY_CALLS,),
    ),
    Mutant(
        "files.jax_export.match_library_calls:_put_back",
        "given and len(results) > 1 and all(map(asks_for_success, status.uses))",
        "given and len(results) > 1",
        (LIBRARY_CALLS,),
    ),
    Mutant(
        "autodiff.checks:_reads_steps",
        "not n and each.name in _SHIFTS and (build.one_number(each.operands[1]) or 0) >= digits",
        "not n and each.name in _SHIFTS",
        (
            "tests/files/jax_export/test_exchange.py::test_digits_that_are_read_from_bits_are_refused",
        ),
    ),
    Mutant(
        "autodiff.reachable_calls:Meetings.now",
        "[*self._rules(below), *self._transposed(below)]",
        "self._rules(below)",
        ("tests/files/test_transposed_calls.py",),
    ),
    Mutant(
        "rules.loops.batched_stacks:Rows._is_carry",
        "ends == [index]",
        "True",
        ("tests/passes/test_rows.py::test_a_batch_is_that_of_jax",),
    ),
    Mutant(
        "rules.loops.batched_stacks:Rows._is_slot",
        "is_one_slot(*shapes, starts) and starts[0] not in self._batched",
        "is_one_slot(*shapes, starts)",
        ("tests/passes/test_rows.py::test_a_batch_is_that_of_jax",),
    ),
    Mutant(
        "rules.loops.batched_stacks:Rows._shape",
        "dims[1:] if v in values and values[v] == v else dims",
        "dims",
        ("tests/passes/test_rows.py::test_an_argument_around_the_loop_has_rows",),
    ),
    Mutant(
        "files.jax_export.compare_ops:Reading._read",
        "self.alike(view), tuple(numbers[v] for v in view.operands)",
        "self.alike(view)",
        ("tests/files/jax_export/test_compare_ops.py",),
    ),
    Mutant(
        "files.jax_export.match_expansions:",
        "(1, -1)",
        "(1, 1)",
        ("tests/files/jax_export/test_match_expansions.py::test_every_function_of_one_number",),
    ),
    Mutant(
        "files.jax_export.match_expansions:_decay.slope",
        "scaled(build.sub(beside, half))",
        "build.sub(beside, half)",
        ("tests/files/jax_export/test_match_expansions.py::test_a_logarithm_of_a_sum_has_no_kink",),
    ),
    Mutant(
        "autodiff.pending:added",
        "build.add(emitted(known), emitted(ct))",
        "emitted(ct)",
        rules_of_users("custom_jvp-vjp"),
    ),
    Mutant(
        "autodiff.reverse:Reverse.run",
        "reversed(records)",
        "records",
        rules_of_users("custom_jvp-vjp"),
    ),
    Mutant(
        "autodiff.reachable_calls:_is_entered",
        "isinstance(view, ops.LinearCall) or view.closed_over > 0",
        "isinstance(view, ops.LinearCall)",
        ("tests/autodiff/test_reachable_calls.py",),
    ),
    Mutant(
        "autodiff.reachable_calls:Meetings._perturbed",
        "i >= own and v in moving",
        "v in moving",
        ("tests/autodiff/test_reachable_calls.py",),
    ),
    Mutant(
        "frontend.rules.stage_all:_Module._transpose",
        "len(self.rules.linked.functions) > linked",
        "False",
        ("tests/autodiff/test_reachable_calls.py",),
    ),
    Mutant(
        "frontend.rules.stage_all:_Module._transpose",
        "call.update(**self.rules.transposes(self.table[call.rule_key]))",
        "pass",
        ("tests/autodiff/test_reachable_calls.py",),
    ),
    Mutant(
        "frontend.rules.stage_all:_Module._want",
        "self.wanted[key][:2] != known[:2]",
        "False",
        (
            "tests/files/test_refusals.py::test_a_second_derivative_by_more_operands_raises_what_the_rule_does",
        ),
    ),
    Mutant(
        "autodiff.reachable_calls:_next",
        'rule.startswith("transpose") == is_odd',
        "not is_odd",
        ("tests/autodiff/test_reachable_calls.py", "tests/files/test_derivatives.py"),
    ),
    Mutant(
        "autodiff.reachable_calls:Meetings.__init__",
        "self._moving = _Perturbation(functions)",
        "self._moving = Dependence(functions)",
        ("tests/files/test_refusals.py",),
    ),
    Mutant(
        "autodiff.zeros:adds_nothing",
        "_TermSearch(functions).holds(v, {}) and not is_nan(v, functions)",
        "_TermSearch(functions).holds(v, {})",
        ("tests/autodiff/test_user_rules.py::test_any_other_term_is_an_error",),
    ),
    Mutant(
        "autodiff.zeros:_TermSearch.sources",
        "not build.inexact(v.type)",
        "False",
        ("tests/autodiff/test_user_rules.py::test_any_other_term_is_an_error",),
    ),
    Mutant(
        "frontend.rules.wanted_rules:CallRules._accepted",
        "self._known.get(alike, perturbed)",
        "perturbed",
        ("tests/files/test_refusals.py",),
    ),
    Mutant(
        "frontend.rules.wanted_rules:CallRules._pushforwards",
        '"1" in (joint := self._accepted(found, rule, "jvp", wanted.mask))',
        '"2" in (joint := self._accepted(found, rule, "jvp", wanted.mask))',
        ("tests/files/test_refusals.py",),
    ),
    Mutant(
        "rules.shape:dynamic_slice.update",
        "_is_slice(ct, before, starts)",
        "True",
        ("tests/autodiff/test_slices.py",),
    ),
    Mutant(
        "rules.shape:_without_zeros",
        "places == starts and build.shape(update) == tuple(sizes)",
        "build.shape(update) == tuple(sizes)",
        ("tests/autodiff/test_slices.py",),
    ),
    Mutant(
        "rules.shape:_is_slice",
        "list(part.owner.operands) == [whole, *starts]",
        "v.owner.operands[0] == whole",
        ("tests/autodiff/test_slices.py",),
    ),
    Mutant(
        "rules.loops.invariants:Invariants._sources",
        "(inputs_of(v, operation), False)",
        "(inputs_of(v, operation), True)",
        ("tests/program/test_memory.py::test_what_a_rule_gives_is_stored_once",),
    ),
    Mutant(
        "autodiff.residuals:_FlowGraph._fill",
        "self.capacity[b][a] += flow",
        "pass",
        ("tests/autodiff/test_residuals.py",),
    ),
    Mutant(
        "autodiff.residuals:minimum_cut",
        "2 * i + 1 in reaches and 2 * i not in reaches",
        "2 * i + 1 in reaches",
        ("tests/autodiff/test_residuals.py",),
    ),
    Mutant(
        "passes.rewrites.softplus:_emit",
        '"GE" if is_first else "LE"',
        '"GE"',
        ("tests/passes/test_simplify.py",),
    ),
    Mutant(
        "passes.rewrites.max_pool:_emit",
        "build.full_like(which, number)",
        "build.full_like(which, 1)",
        ("tests/passes/test_simplify.py",),
    ),
    Mutant(
        "passes.as_run:as_run",
        "simplify or has_order(module) or any(map(is_unknown, ops.walk_calls(module)))",
        "simplify or has_order(module)",
        (
            "tests/autodiff/test_user_rules.py::test_a_jvp_rule_may_push_through_a_backward_rule_that_is_not_linear",
        ),
    ),
    Mutant(
        "rules.calls.linear_call:linear_call_jvp",
        "return [Refused(missing_map(view))] * len(op.results)",
        "pass",
        (
            "tests/autodiff/test_user_rules.py::test_what_needs_a_tangent_that_only_goes_back_does_not_run",
        ),
    ),
    Mutant(
        "autodiff.residuals:hands_on",
        'operation.name == "stablehlo.optimization_barrier" and not len(operation.attributes)',
        'operation.name == "stablehlo.optimization_barrier"',
        ("tests/passes", "tests/program/test_memory.py"),
    ),
    Mutant(
        "files.vhlo_gaps:_of_mhlo",
        'name is None or "mhlo.backend_config" in call.attributes',
        "name is None",
        ("tests/files/test_high_level.py",),
    ),
    Mutant(
        "rules.calls.derivative_ops:_own_name",
        '"" if op.operation.context.is_registered_operation(name) else name',
        "name",
        ("tests/files/test_high_level.py",),
    ),
    Mutant(
        "_jax.user_rules:traced_fwd",
        "{id(operands[i]): value for i, value in literals.items()}",
        "{}",
        (
            "tests/autodiff/test_user_rules.py::test_numbers_of_python_among_residuals_are_known_to_the_backward_rule",
        ),
    ),
    Mutant(
        "frontend.rules.call_table:CallTable._identity",
        "types, function, primal, _literals(equation)",
        "types, function, primal",
        (
            "tests/autodiff/test_user_rules.py::test_numbers_of_python_among_residuals_are_known_to_the_backward_rule",
        ),
    ),
    Mutant(
        "files.refusals:_is_differentiable",
        "program.jvp()",
        "pass",
        ("tests/files/test_refusals.py",),
    ),
    Mutant(
        "files.refusals:_is_differentiable",
        "contextlib.suppress(NotLinearError)",
        "contextlib.nullcontext()",
        ("tests/files/test_refusals.py",),
    ),
    Mutant(
        "files.embedded_constants:Held._resource",
        "_equal(array, other)",
        "array is other",
        (
            "tests/files/test_merge_entries.py::test_large_constants_of_rules_are_shared_and_saved_again",
        ),
    ),
    Mutant(
        "files.merge_entries:_prepare_as_derivatives",
        "run_stages(module, PREPARE)",
        "pass",
        (
            "tests/files/test_merge_entries.py::test_large_constants_of_rules_are_shared_and_saved_again",
        ),
    ),
    Mutant(
        "files.loaded_program:_of_entry",
        "len(entries) > 1",
        "False",
        ("tests/files/test_merge_entries.py::test_each_entry_computes_what_was_saved",),
    ),
    Mutant(
        "program.record:Record._remade",
        '{"_further": tuple(further), "_stages": stages, "entries": {}}',
        '{"_further": tuple(further), "_stages": stages}',
        ("tests/files/test_merge_entries.py::test_what_is_derived_or_traced_has_no_entries",),
    ),
    Mutant(
        "rules.calls.find_rule:_find_jvp_rules",
        'mask.count("1") > 1',
        "False",
        ("tests/files/test_refusals.py",),
    ),
    Mutant(
        "autodiff.specialized:reader.read",
        "(*signature, *map(attributes.get, rule.reads or ()), count)",
        "(*signature, count)",
        ("tests/autodiff/test_specialized.py",),
    ),
    Mutant(
        "autodiff.specialized:reader.read",
        '"y" if i is None else "x" if j is None else "xx" if i == j else "xy"',
        '"xx" if i == j else "xy"',
        ("tests/autodiff/test_specialized.py",),
    ),
    Mutant(
        "autodiff.specialized:reader.read",
        '"xx" if i == j else "xy"',
        '"xy"',
        ("tests/autodiff/test_specialized.py",),
    ),
    Mutant(
        "autodiff.specialized:reader.read",
        "signature = rule, kind, *known, *(i is None for i in places), *map(given.index, given)",
        "signature = rule, kind, *known, *map(given.index, given)",
        ("tests/autodiff/test_specialized.py",),
    ),
    Mutant(
        "autodiff.specialized:reader.read",
        "signature = rule, kind, *known, *(i is None for i in places), *map(given.index, given)",
        "signature = rule, kind, *known, *(i is None for i in places)",
        ("tests/autodiff/test_specialized.py",),
    ),
    Mutant(
        "autodiff.specialized:reader.read",
        "first if rule.alike else kind_of[result.type]",
        "first",
        ("tests/autodiff/test_specialized.py",),
    ),
    Mutant(
        "autodiff.residuals:Residuals._producers",
        "v in self.exact or isinstance(v, ir.BlockArgument)",
        "isinstance(v, ir.BlockArgument)",
        ("tests/passes/test_compared.py",),
    ),
    Mutant(
        "autodiff.residuals:Residuals._producers",
        "asks_for_equality(operation)",
        "False",
        ("tests/passes/test_compared.py",),
    ),
    Mutant(
        "rules.calls.derivative_ops:_vjp_rules",
        "diff.found_in(diff.function(bwd), asks_for_equality) is not None",
        "False",
        ("tests/passes/test_compared.py",),
    ),
    Mutant(
        "autodiff.reverse:Reverse.residuals",
        "self.compared.update(values[i] for i in compared)",
        "pass",
        ("tests/passes/test_compared.py",),
    ),
    Mutant(
        "autodiff.specialized:reader.read",
        "() if rule.variant is None else None",
        "()",
        ("tests/rules/test_refusals.py",),
    ),
    Mutant(
        "_jax.scans:_lower",
        "_hlo.subtract(_integer(length), counter)",
        "counter",
        ("tests/_jax/test_lowering.py",),
    ),
    Mutant(
        "autodiff.specialized:_function",
        "[values[operands.index(v)] for v in operands]",
        "values",
        ("tests/autodiff/test_specialized.py",),
    ),
    Mutant(
        "autodiff.specialized:_taken_out",
        "[Constant(*constants[v]) for v in used]",
        "[Constant(*constants[v]) for v in reversed(used)]",
        ("tests/autodiff/test_specialized.py",),
    ),
    Mutant(
        "autodiff.specialized:_pulled_back",
        "any(found[i] != cts[0] for i in gives)",
        "all(found[i] != cts[0] for i in gives)",
        ("tests/autodiff/test_specialized.py",),
    ),
    Mutant(
        "autodiff.specialized:specialize_forward",
        "rule.copies and any(name not in rule.reads for name in attributes)",
        "False",
        ("tests/autodiff/test_specialized.py",),
    ),
    Mutant(
        "autodiff.specialized:_Looks.clone",
        "copy.location = build.here.loc",
        "pass",
        ("tests/autodiff/test_specialized.py",),
    ),
    Mutant(
        "autodiff.specialized:_pushed_forward",
        "list(given).index(found)",
        "0",
        ("tests/autodiff/test_specialized.py",),
    ),
    Mutant(
        "autodiff.forward:Forward._forget",
        "del self.active[result], self.kinds[place]",
        "self._tangents.append(self._tangents[0])",
        ("tests/autodiff/test_specialized.py",),
    ),
    Mutant(
        "autodiff.forward:Forward._emit",
        "some_refused and (refused := _refused(given))",
        "False",
        (
            "tests/autodiff/test_user_rules.py::"
            "test_a_bwd_that_is_not_linear_is_no_error_where_its_derivative_is_stopped",
        ),
    ),
    Mutant(
        "rules.reduction:variant",
        "return CONSTRAINED_SUM",
        "return SUM",
        ("tests/autodiff/test_specialized.py::test_a_copy_has_what_the_op_has_and_nothing_else",),
    ),
    Mutant(
        "autodiff.specialized:_Attributes._of",
        "name not in (rule.reads or ())",
        "False",
        ("tests/autodiff/test_specialized.py::test_a_rule_names_the_attributes_that_it_reads",),
    ),
    Mutant(
        "autodiff.reverse:Reverse.run",
        "cts[place] = new if before is None else added(before, values[i + 1], new)",
        "cts[places[0]] = new if before is None else added(before, values[i + 1], new)",
        ("tests/autodiff/test_specialized.py::test_what_tells_two_ops_apart",),
    ),
    Mutant(
        "autodiff.zeros:_of_linear",
        "not is_sum",
        "False",
        ("tests/autodiff/test_zeros.py",),
    ),
    Mutant(
        "autodiff.reverse:check_no_term",
        "op.name not in _MARK_WITH_NAN or not is_nan(v, functions)",
        "True",
        rules_of_users("a rule that takes elements-vjp"),
    ),
    Mutant(
        "autodiff.functions:_drop_linear_part",
        "lost = _dependent(diff, block, [*linear, *stand_ins], may_lose)",
        "pass",
        ("tests/passes/test_not_linear.py",),
    ),
    Mutant(
        "autodiff.functions:_dependent",
        "all(i < may_lose for i in lost)",
        "True",
        ("tests/passes/test_not_linear.py",),
    ),
    Mutant(
        "autodiff.forward:Forward._visit",
        "operands += captures(operation)",
        "pass",
        flow("cond-jvp", "fori_loop-jvp"),
    ),
    Mutant(
        "rules.calls.derivative_ops:_pull_back",
        "total[i] = added(total[i], v, as_given(ct, v.type))",
        "total[-1 - i] = added(total[-1 - i], v, as_given(ct, v.type))",
        rules_of_users("custom_jvp, one operand-vjp", "rules of rules-vjp"),
    ),
    Mutant(
        "rules.calls.linear_call:linear_call_vjp",
        "raise ...",
        "pass",
        ("tests/passes/test_not_linear.py",),
    ),
    Mutant(
        "rules.calls.linear_call:linear_call_jvp",
        '"0" * (len(op.operands) - count)',
        '"1" * (len(op.operands) - count)',
        rules_of_users("linear_call-jvp"),
    ),
    Mutant(
        "rules.calls.func_call:_recompute",
        'build.emit("stablehlo.optimization_barrier", [v.type for v in values], values)',
        'build.emit("stablehlo.tuple", [v.type for v in values], values)',
        rules_of_users("checkpoint-vjp"),
    ),
    Mutant(
        "rules.branches:Branches.activity",
        "flags[i] |= v in active",
        "flags[i] &= v in active",
        flow("cond-vjp", "cond in scan-vjp"),
    ),
    Mutant(
        "rules.loops.while_loop:_Stacked._emit_reverse_body",
        "build.sub(self.total, 1)",
        "self.total",
        flow("fori_loop-vjp"),
    ),
    Mutant(
        "rules.loops.while_loop:loop_activity",
        "[c or y in active for c, y in zip(carries, yields, strict=True)]",
        "carries",
        flow("a carry that becomes active-jvp", "a carry that becomes active-vjp"),
    ),
    Mutant(
        "rules.loops.while_loop:_reached",
        "carries | {i for i, a in enumerate(arguments) if a in found}",
        "carries",
        flow("carries that swap-vjp"),
    ),
    Mutant(
        "rules.loops.while_loop:_Stacked._counter_value",
        "i if counter.start == 0 else build.add(i, counter.start)",
        "i",
        flow("while, counting up in steps-vjp"),
    ),
    Mutant(
        "rules.loops.while_loop:_Stacked._counter_value",
        "build.integer(counter.start, i)",
        "build.integer(0, i)",
        flow("while, counting down in steps-vjp"),
    ),
    Mutant(
        "ir.loop_carries:_index",
        "counter is None or (counter.start, counter.step) != (0, 1)",
        "counter is None",
        flow("fori_loop, start not 0-vjp", "while, counting down in steps-vjp"),
    ),
    Mutant(
        "ir.while_loops:",
        "-(-(b - a) // s)",
        "(b - a) // s + 1",
        flow("fori_loop-vjp"),
    ),
    Mutant(
        "ir.while_loops:",
        "-(-(a - b) // -s)",
        "(a - b) // -s",
        flow("while, counting down in steps-vjp"),
    ),
    Mutant(
        "autodiff.checkpoints:_Blocks._fill",
        "build.add(first, number)",
        "number",
        ("tests/program/test_memory_budget.py::test_counters_of_a_loop_in_blocks",),
    ),
    Mutant(
        "autodiff.checkpoints:_Blocks._first_row",
        "row - (length - 1)",
        "row",
        ("tests/program/test_memory_budget.py::test_a_loop_in_blocks_computes_the_same",),
    ),
    Mutant(
        "autodiff.schedules:_Planner._of_loop",
        "loop.trip_count is not None and count > 3 and not self.acts(operation)",
        "loop.trip_count is not None and count > 3",
        ("tests/program/test_memory_budget.py::test_loops_with_effects_stay_whole",),
    ),
    Mutant(
        "autodiff.schedules:_Segments._read_by",
        "yield from _used_inside(operation)",
        "pass",
        ("tests/program/test_memory_budget.py::test_the_estimate_is_what_the_table_says",),
    ),
    Mutant(
        "autodiff.schedules:_Planner.options",
        "total | row",
        "total + row",
        ("tests/program/test_memory_budget.py::test_the_estimate_is_what_the_table_says",),
    ),
    Mutant(
        "rules.calls.func_call:_recompute",
        "fenced = _through_branch(fenced, [*guarded, len(kept) + sizes.index(min(sizes))])",
        "_through_branch(fenced, [*guarded, len(kept) + sizes.index(min(sizes))])",
        ("tests/program/test_memory_budget.py::test_what_runs_again_takes_a_copy_from_a_branch",),
    ),
    Mutant(
        "rules.loops.unbounded:Checkpointed._halve",
        "build.add(mark, half)",
        "build.add(build.add(mark, half), 1)",
        flow("while, data-dependent-vjp", "fori_loop, run-time bounds, nested-vjp"),
    ),
    Mutant(
        "rules.loops.unbounded:Checkpointed.__init__",
        "without_effects(self.diff, self.pair.forward)",
        "self.pair.forward",
        ("tests/program/test_program.py::test_an_effect_of_a_loop_without_a_bound_happens_once",),
    ),
    Mutant(
        "passes.order_effects:_marked_call",
        "operation.operands[index] = token",
        "operation.operands[index] = operation.operands[index]",
        (
            "tests/program/test_program.py::test_effects_have_jax_s_order_wherever_they_are",
            "tests/program/test_program.py::test_a_condition_has_effects_in_order",
        ),
    ),
    Mutant(
        "rules.manual_computation:_ReversedBody._seed",
        "mine if copies == 1 else build.mul(mine, 1.0 / copies)",
        "mine",
        ("tests/rules/test_manual_computation.py",),
    ),
    Mutant(
        "autodiff.pending:added",
        "known.__class__ is Total",
        "False",
        (
            "tests/autodiff/test_wide_cotangents.py::test_they_are_handed_on_where_a_rule_makes_them[scan]",
        ),
    ),
    Mutant(
        "frontend.rules.stage_all:_Module.complete",
        "self.table.hands_on",
        "False",
        (
            "tests/autodiff/test_wide_cotangents.py::test_a_file_has_the_rules_for_their_types[layers]",
        ),
    ),
    Mutant(
        "frontend.rules.wanted_rules:asked_for_types",
        "(None, *((i,) for i in outs if len(outs) > 1))",
        "(None,)",
        (
            "tests/autodiff/test_wide_cotangents.py::test_a_file_has_the_rules_for_each_result_alone",
        ),
    ),
    Mutant(
        "rules.calls.checkpoint_policy:_bring_out",
        "_return_marked(diff, operation)",
        "pass",
        ("tests/program/test_memory.py::test_a_policy_reaches_into_branches_and_loops_that_count",),
    ),
    Mutant(
        "rules.loops.unbounded:Checkpointed._reverse_step",
        "build.add(a, by_value[v])",
        "by_value[v]",
        ("tests/passes/test_captured.py",),
    ),
    Mutant(
        "frontend.keep:Keeper._primitive",
        "not _carries_derivative(equation) or _lacks_jvp(equation)",
        "True",
        (
            "tests/frontend/test_keep.py"
            "::test_primitives_whose_lowering_loses_the_derivative_are_kept",
        ),
    ),
    Mutant(
        "frontend.native:is_native",
        "ops_of(equation, debug_info, surroundings) <= may_become | BROADCASTS",
        "True",
        ("tests/frontend/test_native.py::test_derivatives_agree_with_jax",),
    ),
    Mutant(
        "as_jax.evaluate:Evaluation._op",
        "is_foreign(operation) or lacks_rule(operation)",
        "is_foreign(operation)",
        (
            "tests/as_jax/test_table.py::test_a_derivative_that_jax_gives_zero_or_nothing_for_is_the_error_of_the_program",
        ),
    ),
)


def items(*cases: str) -> tuple[str, ...]:
    """Records of tests/rules, in batches."""
    test = "tests/passes/test_vmap.py::test_a_batch_is_what_each_item_is"
    return tuple(f"{test}[{case}]" for case in cases)


RULES_OF_BATCHES = ("tests/program/test_batches.py::test_rules_are_batched_with_their_calls",)
ITEMS_BY_THEMSELVES = (
    "tests/program/test_batches.py::test_each_item_leaves_a_loop_and_takes_a_branch_by_itself",
)

BATCHES = (
    Mutant(
        "autodiff.batch_rules:shifted",
        "(d + 1 for d in dims)",
        "dims",
        items("stablehlo.reduce-add", "stablehlo.transpose"),
    ),
    Mutant(
        "rules.sorting:_batch_sort",
        "dimension + 1 if dimension >= 0 else dimension",
        "dimension",
        items("stablehlo.sort-one"),
    ),
    Mutant(
        "rules.indexing:_still_sorted",
        'build.flag(op, "indices_are_sorted") and not batched',
        "True",
        (
            "tests/passes/test_vmap_indexing.py::test_indices_of_a_batch_are_not_promised_to_be_sorted",
        ),
    ),
    Mutant(
        "rules.shape:_batch_dynamic_update_slice",
        "indices = indexing.clamp(indices, op.shape(0), dims.batched(False, True), op.shape(1))",
        "pass",
        ("tests/passes/test_vmap_indexing.py::test_each_item_has_its_own_places",),
    ),
    Mutant(
        "rules.loops.while_loop:_batch",
        "build.select(along(go, build.shape(y)[1:]), y, x) if flag else y",
        "y",
        ITEMS_BY_THEMSELVES,
    ),
    Mutant(
        "rules.loops.while_loop:_run_where_going_on",
        "[v for v in own if v not in fixed or size[v] <= room]",
        "[]",
        (
            "tests/program/test_batches.py::test_an_item_that_has_left_a_loop_makes_no_gradient_of_a_sum_nan",
        ),
    ),
    Mutant(
        "rules.branches:_batch_choice",
        "found[-1]",
        "found[0]",
        ITEMS_BY_THEMSELVES,
    ),
    Mutant(
        "rules.branches:taken.make",
        "build.select(along(flag, build.shape(t)[1:]), t, build.zeros(t.type))",
        "t",
        ("tests/program/test_batches.py::test_a_branch_not_taken_makes_no_gradient_of_a_sum_nan",),
    ),
    Mutant(
        "autodiff.batching:Frame._wanted",
        "build.reduce_sum(build.convert(known, number), (0,))",
        "build.reduce(build.convert(known, number), 0, (0,), 'stablehlo.maximum')",
        RULES_OF_BATCHES,
    ),
    Mutant(
        "rules.loops.while_loop:_batch",
        "apart and frame.diff.found_in(operation, acts) is not None",
        "frame.diff.found_in(operation, acts) is not None",
        ("tests/program/test_batches.py::test_an_item_that_has_left_a_loop_calls_nobody",),
    ),
    Mutant(
        "autodiff.batching:BatchSignature.functions",
        "batching.function(names[0], self.flags, wanted)",
        "batching.function(names[0], self.flags)",
        ("tests/program/test_batches.py::test_a_result_that_all_items_share_has_its_rule_too",),
    ),
    Mutant(
        "rules.calls.derivative_ops:_batch_rules",
        "found[ops.RULE] = build.string(key)",
        "del found\nreturn ir.DictAttr.get({}, op.operation.context)",
        RULES_OF_BATCHES,
    ),
)

VALUES_OF_RULES = "tests/frontend/test_rules_that_close_over.py"

AROUND = (
    Mutant(
        "_jax.tracing:Settings.__call__",
        "setting.value != value",
        "False",
        ("tests/frontend/rules/test_rule_table.py",),
    ),
    Mutant(
        "_jax.references:_held",
        "jaxprs.replaced(jaxpr, eqns=[_hold(each) for each in jaxpr.eqns])",
        "jaxpr",
        ("tests/_jax/test_references.py::test_rules_stay_and_answer",),
    ),
    Mutant(
        "api.linear_maps:_put.put",
        "place.addupdate(converted(ct, place.dtype))",
        "place[...] = ct",
        ("tests/_jax/test_references.py",),
    ),
    Mutant(
        "_jax.holders:_with_forwarded",
        "[i if i is None else i + count for i in forwarded]",
        "forwarded",
        (f"{VALUES_OF_RULES}::test_by_what_only_the_rule_uses",),
    ),
    Mutant(
        "rules.windows:_fold_windows",
        "window.has_gaps() and not _is_neutral(op)",
        "False",
        ("tests/frontend/test_native.py::test_derivatives_agree_with_jax",),
    ),
    Mutant(
        "frontend.rules.trace_rule:_own_jvp",
        "[None if is_zero else next(given) for is_zero in zeros]",
        "[next(given, None) for _ in zeros]",
        (
            "tests/autodiff/test_user_rules.py::test_a_jvp_rule_may_say_that_a_result_has_no_tangent",
        ),
    ),
    Mutant(
        "_jax.user_rules:traced_fwd",
        "[next(own) if i is None else operands[i] for i in forwarded]",
        "[next(own, operands[0]) for _ in forwarded]",
        (
            "tests/autodiff/test_user_rules.py::test_a_vjp_rule_runs_once_whatever_its_residuals_are",
        ),
    ),
    Mutant(
        "_jax.user_rules:traced_fwd.name",
        "[known[id(v)] if id(v) in known else found[places[id(v)]] for v in named]",
        "[known[id(v)] if id(v) in known else found[i] for i, v in enumerate(named)]",
        (
            "tests/autodiff/test_user_rules.py::test_a_vjp_rule_runs_once_whatever_its_residuals_are",
        ),
    ),
    Mutant(
        "frontend.rules.trace_rule:_own_jvp",
        'rule.primitive != "custom_jvp_call" or len(chosen) < len(rule.call.in_avals)',
        'rule.primitive != "custom_jvp_call"',
        ("tests/autodiff/test_user_rules.py::test_a_jvp_rule_sees_which_tangents_are_zero",),
    ),
    Mutant(
        "frontend.rules.kept_call:KeptCall.as_called",
        "self.call.eqns[0].ctx.manager",
        "contextlib.nullcontext()",
        (
            "tests/devices/test_explicit_meshes.py::test_results_lie_on_an_explicit_mesh_as_with_jax",
        ),
    ),
    Mutant(
        "_jax.tracing:Settings.where",
        "wide if wide is not self and any(map(jaxprs.is_wide, types)) else self",
        "self",
        ("tests/frontend/test_settings_of_parts.py::test_functions_of_jax_in_a_part_with_64_bits",),
    ),
    Mutant(
        "rules.calls.find_rule:vjp_rule",
        "(mask, present) == (covered, given) if view.sees_zeros else within(mask, covered)",
        "within(mask, covered)",
        ("tests/files/test_rules_that_see_zeros.py",),
    ),
    Mutant(
        "frontend.rules.wanted_rules:CallRules._pushforwards",
        'self._add_for_other_sets(found, rule, "jvp")',
        "pass",
        ("tests/files/test_rules_that_see_zeros.py",),
    ),
    Mutant(
        "frontend.rules.leaked_values:TraceConstants._note",
        "array if is_same and is_array else None",
        "None",
        (
            "tests/frontend/test_rules_that_close_over.py::test_a_rule_may_read_a_constant_of_the_trace",
        ),
    ),
    Mutant(
        "frontend.closures.reassigned:_assigned_after",
        "store > place",
        "False",
        (
            f"{VALUES_OF_RULES}::test_a_variable_that_is_assigned_again_has_its_last_value_and_a_warning",
        ),
    ),
    Mutant(
        "rules.calls.find_rule:rule_mask",
        "any(op.frame.diff.function_activity(view.decomposition, closed_over, op.frame))",
        "False",
        (f"{VALUES_OF_RULES}::test_by_what_it_closes_over_is_an_error",),
    ),
    Mutant(
        "api.named_axes:_batch",
        "_times(gradient, axis.size)",
        "gradient",
        ("tests/api/test_named_axes.py",),
    ),
    Mutant(
        "api.named_axes:_batch",
        "axis.name in axes and of_primal is None",
        "axis.name in axes",
        ("tests/api/test_named_axes.py",),
    ),
)

SUMS = "tests/rules/loops/test_sums.py"

LOOPS = (
    Mutant(
        "rules.loops.sums:Sums._slots",
        "ends == (0, last)",
        "False",
        (SUMS,),
    ),
    Mutant(
        "rules.loops.sums:Sums._summands",
        "v == first and uses(v) == 1",
        "v == first",
        (SUMS,),
    ),
    Mutant(
        "rules.loops.sums:Sums._product",
        "min(self.room, total if summand.slots is not None else total // MUCH_LARGER)",
        "total if summand.slots is not None else total // MUCH_LARGER",
        (SUMS,),
    ),
    Mutant(
        "autodiff.slices:_in_a_row",
        "first < end",
        "False",
        ("tests/autodiff/test_slices.py",),
    ),
    Mutant(
        "autodiff.slices:summed",
        "total is None and not others and len(parts) > 1",
        "not others and len(parts) > 1",
        ("tests/autodiff/test_slices.py",),
    ),
    Mutant(
        "rules.calls.checkpoint_policy:_replace_in_body",
        "_replace(value, slot)",
        "return",
        (
            "tests/program/test_memory.py::test_a_policy_says_what_is_kept_of_loops_and_of_functions_that_are_called",
        ),
    ),
    Mutant(
        "rules.custom_calls:_custom_call_variant",
        "_PLACEMENT if target == PLACEMENT else _ANNOTATION",
        "_ANNOTATION",
        ("tests/devices/test_offload.py::test_moves_of_the_users",),
    ),
    Mutant(
        "_jax.lowering:Lowering._context",
        "all_default_mem_kind=False",
        "all_default_mem_kind=True",
        ("tests/devices/test_offload.py::test_moves_of_the_users",),
    ),
    Mutant(
        "rules.calls.checkpoint_policy:_marks_to_move",
        "_move(mark)",
        "memory_of(mark)",
        ("tests/devices/test_offload.py",),
    ),
    Mutant(
        "autodiff.functions:split_entry",
        "placements.note_results(diff.function(entry), diff.functions)",
        "pass",
        ("tests/devices/test_offload.py::test_halves_hand_on_what_is_on_the_host",),
    ),
    Mutant(
        "autodiff.residuals:Residuals.choose",
        "dict.fromkeys(map(self._current, self.placeholders))",
        "self.placeholders",
        ("tests/program/test_memory.py::test_what_a_rule_gives_is_stored_once",),
    ),
)

KERNELS = (
    Mutant(
        "_jax.kernels:_hold",
        "references.passing(equation)",
        "equation",
        ("tests/_jax/test_kernels.py::test_derivatives_of_kernels",),
    ),
    Mutant(
        "_jax.kernels:as_loops",
        "near is held",
        "True",
        ("tests/_jax/test_kernels.py::test_derivatives_of_kernels",),
    ),
    Mutant(
        "_jax.kernels:_tangent_of_the_other",
        "tangents[1] * jnp.where(jnp.isnan(value), value, jnp.ones_like(value))",
        "tangents[1]",
        (
            "tests/_jax/test_kernels.py::test_what_is_outside_of_an_array_is_nan_and_so_are_its_derivatives",
        ),
    ),
    Mutant(
        "_jax.kernels:_without_scope",
        'equation.primitive.name != "run_scoped" or equation.params["collective_axes"]',
        "True",
        ("tests/_jax/test_kernels.py::test_derivatives_of_kernels",),
    ),
)

NANS = (
    Mutant(
        "nans.links:links",
        "ELEMENTWISE - MOVES",
        "ELEMENTWISE",
        ("tests/nans/test_find_nan.py::test_only_elements_that_count_are_blamed",),
    ),
    Mutant(
        "nans.links:_tried",
        "found.any() and elements.size > 1 and runs < MOST_RUNS",
        "False",
        ("tests/nans/test_find_nan.py::test_only_elements_that_count_are_blamed",),
    ),
    Mutant(
        "nans.links:_tried",
        "(bad(run(op, operands)[result]) & wanted & ~explained).any()",
        "False",
        ("tests/nans/test_find_nan.py::test_an_op_that_mixes_elements",),
    ),
    Mutant(
        "nans.walk:_may_explain",
        "not is_written(op.operands[operand]) or is_written(op.results[0])",
        "True",
        ("tests/nans/test_find_nan.py::test_a_nan_is_found_where_it_is_made",),
    ),
    Mutant(
        "nans.walk:Walk._plain",
        "[~wanted, *(x.covers for x in computed)]",
        "[~wanted, *(np.full_like(wanted, x.covers.any()) for x in computed)]",
        ("tests/nans/test_find_nan.py::test_a_nan_is_found_where_it_is_made",),
    ),
    Mutant(
        "nans.search:search",
        "[x and _only(x, every.ends[every.ends > 0][0]) for x in wanted]",
        "wanted",
        ("tests/nans/test_find_nan.py::test_the_way_is_that_of_one_element",),
    ),
)


def planted(name: str) -> tuple[str, ...]:
    """A fault that `check_rules` must find."""
    return (f"tests/testing/test_planted_faults.py::test_a_planted_fault_is_found[{name}]",)


def right(name: str) -> tuple[str, ...]:
    """A rule of which `check_rules` must not say that it is wrong."""
    return (f"tests/testing/test_right_rules.py::test_a_right_rule_raises_no_alarm[{name}]",)


CHECKS = (
    Mutant(
        "testing.slopes:_extrapolated",
        "np.fmax(least, further)",
        "least",
        ("tests/testing/test_slopes.py::test_the_error_bounds_what_is_wrong",),
    ),
    Mutant(
        "testing.slopes:_slope",
        "apart > 1e-3 * np.fmax(np.abs(low), np.abs(high))",
        "apart > np.inf",
        ("tests/testing/test_slopes.py::test_a_kink_has_two_slopes",),
    ),
    Mutant(
        "testing.judgements:judged",
        "error + slope.unsteady",
        "error",
        right("a_bisection"),
    ),
    Mutant(
        "testing.judgements:judged",
        "np.isfinite(value) & np.isfinite(error) & (np.abs(value) < limits.most)",
        "np.isfinite(value) & np.isfinite(error)",
        planted("stopped_in_a_forward_rule"),
    ),
    Mutant(
        "testing.comparison:Comparison._types",
        "jnp.finfo(found.dtype).eps > jnp.finfo(wanted.dtype).eps",
        "False",
        planted("a_cotangent_of_half_precision"),
    ),
    Mutant(
        "testing.comparison:Comparison._forward",
        "np.where(_known(measured, k), slope.error, np.inf)",
        "slope.error",
        right("an_infinite_slope_at_zero"),
    ),
    Mutant(
        "testing.check:_Check._compared",
        "self.special and not subject.has_loops",
        "self.special",
        right("a_bisection"),
    ),
    Mutant(
        "testing.check:_Check._met",
        "i >= hidden and is_inexact(aval)",
        "is_inexact(aval)",
        right("kinks_in_a_sum"),
    ),
    Mutant(
        "testing.check:_Check._closed_over",
        "any(each.moves[i] for each in met)",
        "False",
        planted("closes_over_a_differentiated_value"),
    ),
)

SHOWN = ("tests/tools/test_view.py", "tests/tools/test_dump.py::test_files_have_all_constants")
VIEWS = (
    Mutant(
        "ir.costs:flops",
        "2 * count * _contracted(operation)",
        "count * _contracted(operation)",
        SHOWN,
    ),
    Mutant("ir.costs:runs_inside", "read_loop(operation).slots or 1", "1", SHOWN),
    Mutant("ir.printed:Printed.__init__", "not _INSIDE.match(line)", "True", SHOWN),
    Mutant(
        "tools.view.listing:_place", "dict.fromkeys(others)", "dict.fromkeys(others[1:])", SHOWN
    ),
    Mutant(
        "tools.view.listing:_Reader.depend_on_arguments",
        "list(block.arguments)[first:]",
        "list(block.arguments)",
        SHOWN,
    ),
    Mutant("tools.view.explorer:nodes", "1 <= op.depth <= DEEPEST", "1 <= op.depth", SHOWN),
    Mutant(
        "tools.dump:_most_elements",
        "MOST_ELEMENTS if folder is None else None",
        "MOST_ELEMENTS",
        SHOWN,
    ),
)

PLUGINS = "tests/passes/test_plugins.py::test_"
REDUCE = "tests/tools/test_reduce.py::test_"
TOOLS = (
    Mutant(
        "rules.custom_calls:_custom_call_variant",
        'RULES.get(f"{_CALL} @{target}")',
        "None",
        (f"{PLUGINS}a_rule_for_the_custom_calls_of_one_target",),
    ),
    Mutant(
        "passes.plugins:installed",
        "point.name in found and found[point.name] != point",
        "False",
        (f"{PLUGINS}a_broken_plug_in_is_one_error",),
    ),
    Mutant(
        "tools.reduction:Reduction.attempt",
        "verify_module(candidate)",
        "pass",
        (f"{REDUCE}each_module_that_is_tried_is_valid_and_the_same_each_time",),
    ),
    Mutant(
        "tools.reduction:ops",
        "len(every[number].operands) + 2",
        "1",
        (f"{REDUCE}an_op_is_replaced_by_any_operand_an_argument_or_zero",),
    ),
    Mutant(
        "tools.reduction:Reduction.run",
        "STEPS",
        "STEPS[:-3]",
        (f"{REDUCE}one_op_in_two_hundred_is_found",),
    ),
)
AS_JAX = (
    Mutant(
        "as_jax.collectives:_along",
        "sorted(groups) == sorted(given)",
        "len(groups) == len(given)",
        (
            "tests/rules/test_manual_computation.py::test_every_derivative_of_shard_map_is_that_of_jax",
        ),
    ),
    Mutant(
        "as_jax.derivative_ops:_tangent",
        "SymbolicZero(jax.typeof(tangent)) if is_zero else tangent",
        "tangent",
        (
            "tests/as_jax/test_function.py::test_a_rule_that_gives_zero_ends_the_flow_of_derivatives",
        ),
    ),
    Mutant(
        "as_jax.source_lines:at",
        "frames_of(location)",
        "()",
        ("tests/as_jax/test_function.py::test_equations_have_the_lines_of_the_program",),
    ),
    Mutant(
        "as_jax.custom_calls:_lapack",
        "routine in QR or routine not in ROUTINES or not is_laid_out(op.operation, True)",
        "True",
        ("tests/as_jax/test_function.py::test_a_routine_of_lapack_is_the_primitive_of_jax",),
    ),
)


MUTANTS = (
    FORMULAS + DRIVERS + BATCHES + AROUND + LOOPS + KERNELS + NANS + CHECKS + VIEWS + TOOLS + AS_JAX
)
