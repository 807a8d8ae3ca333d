"""Wrong versions of rules and drivers, and the tests that must notice.

Each is a text of one source file that is there once, and what stands in its place.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """One wrong version.

    Attributes:
      file: a source file, below compiler/pullback.
      old: a text that is in the file exactly once.
      new: what is put in its place.
      tests: the tests of which at least one must fail.
    """

    file: str
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


ELEMENTWISE = "rules/elementwise.py"

FORMULAS = (
    Mutant(
        ELEMENTWISE,
        "neg(_by_divisor(op, ct)) if second else None",
        "_by_divisor(op, ct) if second else None",
        rule("stablehlo.divide"),
    ),
    Mutant(
        ELEMENTWISE,
        "if not _has_room(op.result_type):",
        "if False:",
        ("tests/autodiff/test_choices.py::test_a_small_divisor_of_zero_in_half_precision",),
    ),
    Mutant(
        ELEMENTWISE,
        "return ct.through(_quotient_vjp(op, [ct.ct]))",
        "ct = ct.ct",
        ("tests/autodiff/test_choices.py",),
    ),
    Mutant(
        ELEMENTWISE,
        "if is_repeated and is_here and",
        "if is_repeated and",
        (
            "tests/passes/test_captured.py::"
            "test_a_repeated_divisor_whose_source_has_no_cotangent_in_a_branch",
        ),
    ),
    Mutant(
        ELEMENTWISE,
        "neg(div(unbroadcast(repeat, mul(quotient, op.lhs)), y))",
        "neg(unbroadcast(repeat, mul(quotient, op.lhs)))",
        rule("stablehlo.divide-repeated-divisor"),
    ),
    Mutant(
        ELEMENTWISE,
        "return ct if first else None, neg(ct) if second else None",
        "return ct if first else None, ct if second else None",
        rule("stablehlo.subtract"),
    ),
    Mutant(
        ELEMENTWISE,
        "mul(t, div(0.5, op.result)) if",
        "mul(t, div(1.0, op.result)) if",
        rule("stablehlo.sqrt"),
    ),
    Mutant(
        ELEMENTWISE,
        "lambda op, t: mul(t, neg(sin(op.x)))",
        "lambda op, t: mul(t, sin(op.x))",
        rule("stablehlo.cosine"),
    ),
    Mutant(
        ELEMENTWISE,
        "mul(add(op.result, 1.0), sub(1.0, op.result))),",
        "mul(add(op.result, 1.0), sub(1.0, op.x))),",
        rule("stablehlo.tanh"),
    ),
    Mutant(
        ELEMENTWISE,
        "lambda op, t: mul(t, mul(op.result, sub(1.0, op.result)))",
        "lambda op, t: mul(t, op.result)",
        rule("stablehlo.logistic"),
    ),
    Mutant(
        ELEMENTWISE,
        'select(compare("EQ", mine, other), full_like(mine, 0.5), whole)',
        "whole",
        rule("stablehlo.maximum-edges"),
    ),
    Mutant(
        ELEMENTWISE,
        'both_zero = and_(compare("EQ", x, 0.0), compare("EQ", y, 0.0))',
        'both_zero = and_(compare("EQ", x, 0.0), compare("NE", x, 0.0))',
        rule("stablehlo.power-integer-exponent"),
    ),
    Mutant(
        ELEMENTWISE,
        'return and_(compare("GT", x, low), compare("LT", x, high))',
        'return and_(compare("GE", x, low), compare("LT", x, high))',
        rule("stablehlo.clamp-edges"),
    ),
    Mutant(
        ELEMENTWISE,
        'select(compare("GE", op.x, 0.0), t, neg(t))',
        'select(compare("GT", op.x, 0.0), t, neg(t))',
        rule("stablehlo.abs-edges"),
    ),
    Mutant(
        ELEMENTWISE,
        "return [_whole(op, None, neg(_real_one(op, cts[0])))]",
        "return [_whole(op, None, _real_one(op, cts[0]))]",
        rule("stablehlo.imag-complex"),
    ),
    Mutant(
        ELEMENTWISE,
        "neg(build.imag(ct)) if op.active[1] else None",
        "build.imag(ct) if op.active[1] else None",
        rule("stablehlo.complex"),
    ),
    Mutant(
        "rules/chlo.py",
        "2 / math.sqrt(math.pi)",
        "1 / math.sqrt(math.pi)",
        rule("chlo.erf"),
    ),
    Mutant(
        "rules/reduction.py",
        "x = mul(spread(op, winners.average(ct)), winners.share)",
        "x = mul(spread(op, ct), winners.share)",
        rule("stablehlo.reduce-ties"),
    ),
    Mutant(
        "rules/reduction.py",
        "build.total(ct) if op.active[1] else None]",
        "ct if op.active[1] and not build.rank(ct) else None]",
        rule("stablehlo.reduce-add-init"),
    ),
    Mutant(
        "rules/products.py",
        "pairs = sorted(zip(contract[other], contract[mine], strict=True))",
        "pairs = sorted(zip(sorted(contract[other]), contract[mine], strict=True))",
        rule("stablehlo.dot_general-crossed-contraction"),
    ),
    Mutant(
        "ir/build.py",
        "key = type, value or sign_of(value)",
        "key = type, bool(value)",
        rule("stablehlo.maximum-edges"),
    ),
    Mutant(
        "rules/shape.py",
        "order = None if in_order else",
        "order = None and",
        rule("stablehlo.broadcast_in_dim-permuted"),
    ),
    Mutant(
        "rules/products.py",
        "None if plan.order == tuple(range(len(dims))) else plan.order",
        "None",
        rule("stablehlo.dot_general-crossed-contraction"),
    ),
    Mutant(
        "rules/shape.py",
        "value = build.total(build.sub(ct, inside))",
        "value = build.total(ct)",
        rule("stablehlo.pad"),
    ),
    Mutant(
        "rules/shape.py",
        "        offset += size\n",
        "",
        rule("stablehlo.concatenate"),
    ),
    Mutant(
        "autodiff/slices.py",
        "return build.dynamic_update_slice(total, build.add(here, ct), starts)",
        "return build.dynamic_update_slice(total, ct, starts)",
        rule("stablehlo.slice-overlapping"),
    ),
    Mutant(
        "rules/shape.py",
        "operand = build.dynamic_update_slice(ct, blank, starts)",
        "operand = ct",
        rule("stablehlo.dynamic_update_slice"),
    ),
    Mutant(
        "rules/indexing.py",
        "indices = indexing.clamp(op.operand(1), shape, dims, sizes)",
        "indices = op.operand(1)",
        rule("stablehlo.gather-clip"),
    ),
    Mutant(
        "rules/indexing.py",
        "return found if mask is None else select(mask, found, None)",
        "return found",
        rule("stablehlo.scatter-add", "stablehlo.scatter-add_windows_partly_outside"),
    ),
    Mutant(
        "ir/types.py",
        "return t.element if t.bits >= 32 else",
        "return t.element if t.bits >= 8 else",
        ("tests/rules/test_half_precision.py",),
    ),
    Mutant(
        "rules/windows.py",
        'outside = size if of_equals == "LT" else -1',
        "outside = size",
        rule("stablehlo.select_and_scatter-worst_GT", "stablehlo.select_and_scatter-worst_LT"),
    ),
    Mutant(
        "rules/indexing.py",
        "operand = select(survives, ct, None) if op.active[0] else None",
        "operand = ct if op.active[0] else None",
        rule("stablehlo.scatter-replace"),
    ),
    Mutant(
        "rules/linalg.py",
        "return mul(add(triangle(x, lower=True), strict), 0.5)",
        "return triangle(x, lower=True)",
        rule("stablehlo.cholesky-lower_3_3"),
    ),
    Mutant(
        "rules/linalg.py",
        "return [system.apply_transposed(neg(ct_a)), ct_b]",
        "return [system.apply_transposed(ct_a), ct_b]",
        rule("stablehlo.triangular_solve-left_lower_transpose"),
    ),
    Mutant(
        "rules/linalg.py",
        'once = build.or_(once, build.compare("EQ", place, half - 1))',
        "pass",
        rule("stablehlo.fft-real_even", "stablehlo.fft-inverse_real_even"),
    ),
    Mutant(
        "rules/einsum.py",
        "batch = [label for label in both if label in result]",
        "batch = [label for label in both if label in result and label == both[0]]",
        rule("stablehlo.einsum-elementwise"),
    ),
    Mutant(
        "rules/einsum.py",
        'build.compare("EQ", build.iota(type, i), build.iota(type, j))',
        'build.compare("GE", build.iota(type, i), build.iota(type, j))',
        rule("stablehlo.unary_einsum-trace"),
    ),
    Mutant(
        "rules/indexing.py",
        "    if build.info(indices.type).bits == 64 and shape[dim] < 2**32 - 1:",
        "    if build.info(indices.type).bits == 128:",
        rule("stablehlo.torch_index_select-64-bit"),
    ),
    Mutant(
        "rules/dynamic.py",
        "    if size is not None:\n",
        "    if size is None:\n",
        rule("stablehlo.set_dimension_size-vector", "stablehlo.set_dimension_size-back"),
    ),
    Mutant(
        "ir/bounds.py",
        'build.compare("LT", index,',
        'build.compare("LE", index,',
        rule("stablehlo.set_dimension_size-vector"),
    ),
    Mutant(
        "rules/chlo_scan.py",
        "slices = [loop_carries.read(x, i) for x in inputs]",
        "slices = [loop_carries.read(x, build.integer(0, i)) for x in inputs]",
        rule("chlo.scan-recurrence"),
    ),
    Mutant(
        "frontend/rewrites/negative_powers.py",
        "lax.full_like(x, -n)",
        "lax.full_like(x, -n - 1)",
        ("tests/frontend/test_native.py",),
    ),
    Mutant(
        "frontend/rewrites/reduce_as_fold.py",
        "return elementwise(*inits, *[x[0] for x in xs])",
        "return [x[0] for x in xs]",
        ("tests/frontend/test_reductions.py",),
    ),
    Mutant(
        "frontend/rewrites/reduce_as_fold.py",
        "for i in (0, 1) for x in xs",
        "for i in (1, 0) for x in xs",
        ("tests/frontend/test_reductions.py",),
    ),
)

DRIVERS = (
    Mutant(
        "autodiff/pending.py",
        "for predicate, taken in reversed(self.masks[count:]):",
        "for predicate, taken in self.masks[:0]:",
        ("tests/autodiff/test_choices.py",),
    ),
    Mutant(
        "autodiff/pending.py",
        "if shared := len(",
        "if shared := 0 * len(",
        ("tests/autodiff/test_choices.py",),
    ),
    Mutant(
        "autodiff/reverse.py",
        "masked, ct = ct, ct.ct",
        "ct = ct.emit()",
        ("tests/autodiff/test_choices.py",),
    ),
    Mutant(
        "autodiff/reverse.py",
        "if not self.linear and (left_out or",
        "if False and (left_out or",
        ("tests/autodiff/test_user_rules.py",),
    ),
    Mutant(
        "autodiff/cotangent_reach.py",
        "results if is_custom_vjp(op.operation) else absent",
        "results",
        ("tests/autodiff/test_user_rules.py",),
    ),
    Mutant(
        "files/jax_export/compare_ops.py",
        "if self.alike(v.owner) != step.alike or",
        "if v.owner.name != step.alike[0] or",
        ("tests/files/test_expansions.py",),
    ),
    Mutant(
        "files/jax_export/compare_ops.py",
        "return self._are_same(given.setdefault(key, v), v)",
        "return given.setdefault(key, v) is not None",
        ("tests/files/test_expansions.py",),
    ),
    Mutant(
        "files/jax_export/match_library_calls.py",
        "if not _shows_r(reflectors, makes_q):",
        "if _shows_r is None:",
        ("tests/files/test_linear_algebra.py",),
    ),
    Mutant(
        "program/library_routines.py",
        "v = jnp.conj(jnp.swapaxes(vh, -1, -2))",
        "v = jnp.swapaxes(vh, -1, -2)",
        (
            "tests/files/test_linear_algebra.py::test_singular_vectors_as_routines_for_gpus_give_them",
        ),
    ),
    Mutant(
        "program/library_routines.py",
        'return {1: s, 2: vh, 3: u} if options["transposed"] else {1: s, 2: u, 3: vh}',
        "return {1: s, 2: u, 3: vh}",
        (
            "tests/files/test_linear_algebra.py::test_singular_vectors_as_routines_for_gpus_give_them",
        ),
    ),
    Mutant(
        "files/jax_export/match_library_calls.py",
        "shown = _is_leading_part(user) and _limit(user, dim) <= count",
        "shown = _is_leading_part(user)",
        ("tests/files/test_linear_algebra.py::test_what_has_no_derivative_on_gpus",),
    ),
    Mutant(
        "files/jax_export/match_library_calls.py",
        'platform = home_of(target_of(call) or "")',
        'platform = "cpu"',
        ("tests/files/test_linear_algebra.py",),
    ),
    Mutant(
        "frontend/rules/batched_rules.py",
        "elif len(each) > 1:",
        "elif False:",
        ("tests/frontend/test_rules_along_axes.py",),
    ),
    Mutant(
        "_jax/batch_axes.py",
        "order[order.index(place) :]",
        "order[place:]",
        ("tests/frontend/test_batch_axes.py",),
    ),
    Mutant(
        "_jax/batch_axes.py",
        "frozenset.intersection(*known)",
        "known[0]",
        ("tests/frontend/test_rules_along_axes.py",),
    ),
    Mutant(
        "frontend/rules/batched_rules.py",
        "if all(known is None or place in known for place, known in pairs):",
        "if True:",
        ("tests/frontend/test_rules_along_axes.py",),
    ),
    Mutant(
        "frontend/rules/trace_rule.py",
        "cts = {i: axes[i].to_rule(ct) for i, ct in cts.items()}",
        "pass",
        ("tests/frontend/test_rules_along_axes.py",),
    ),
    Mutant(
        "frontend/rules/batched_rules.py",
        "if shared and arguments:",
        "if False:",
        ("tests/program/test_batches.py",),
    ),
    Mutant(
        "frontend/rules/batched_rules.py",
        "raise _counted_for_each(rule, i)",
        "pass",
        ("tests/program/test_batches.py",),
    ),
    Mutant(
        "frontend/rules/result_layouts.py",
        "key = equation.primitive, tuple(operands), shapes, params",
        "key = tuple(operands), shapes",
        ("tests/frontend/test_rules_along_axes.py",),
    ),
    Mutant(
        "program/derivation.py",
        "{block.arguments[i] for i in unknown}",
        "{block.arguments[i] for i in list(unknown)[1:]}",
        ("tests/api/test_compose.py",),
    ),
    Mutant(
        "program/library_routines.py",
        r'"([01]),1,\d+,',
        r'"([01]),[01],\d+,',
        ("tests/files/test_linear_algebra.py",),
    ),
    Mutant(
        "program/platform_variants.py",
        "retarget = before.retarget and before.retarget.then(step)",
        "retarget = before.retarget",
        ("tests/program/test_retarget.py",),
    ),
    Mutant(
        "program/platform_variants.py",
        "if _called(split[-1].module) == _called(other[-1].module):",
        "if split is not None:",
        ("tests/program/test_retarget.py",),
    ),
    Mutant(
        "frontend/rules/rule_table.py",
        "table._checked_axes, table.settings = self._checked_axes, self.settings",
        "table._checked_axes = self._checked_axes",
        ("tests/program/test_retarget.py",),
    ),
    Mutant(
        "rules/calls/derivative_ops.py",
        "if own is None and not is_ours:",
        "if name is None:",
        ("tests/files/test_high_level.py",),
    ),
    Mutant(
        "program/library_routines.py",
        "if len(expected) == rank and by_columns:",
        "if len(expected) == rank and by_columns is None:",
        ("tests/files/test_linear_algebra.py",),
    ),
    Mutant(
        "files/jax_export/match_library_calls.py",
        "if given and len(results) > 1 and all(map(asks_for_success, status.uses)):",
        "if given and len(results) > 1:",
        ("tests/files/test_linear_algebra.py",),
    ),
    Mutant(
        "autodiff/checks.py",
        "each.name in _SHIFTS and (build.one_number(each.operands[1]) or 0) >= digits",
        "each.name in _SHIFTS",
        ("tests/files/test_exported.py",),
    ),
    Mutant(
        "autodiff/reachable_calls.py",
        "for rule, name in [*self._rules(below), *self._transposed(below)]:",
        "for rule, name in self._rules(below):",
        ("tests/files/test_transposed_calls.py",),
    ),
    Mutant(
        "rules/loops/batched_stacks.py",
        "return ends == [index]",
        "return True",
        ("tests/passes/test_rows.py",),
    ),
    Mutant(
        "rules/loops/batched_stacks.py",
        "return is_one_slot(*shapes, starts) and starts[0] not in self._batched",
        "return is_one_slot(*shapes, starts)",
        ("tests/passes/test_rows.py",),
    ),
    Mutant(
        "rules/loops/batched_stacks.py",
        "return dims[1:] if v in values and values[v] == v else dims",
        "return dims",
        ("tests/passes/test_rows.py",),
    ),
    Mutant(
        "files/jax_export/compare_ops.py",
        "yield self.alike(view), tuple(numbers[v] for v in view.operands)",
        "yield self.alike(view)",
        ("tests/files/test_steps.py",),
    ),
    Mutant(
        "files/jax_export/match_expansions.py",
        "(1, -1)),",
        "(1, 1)),",
        ("tests/files/test_expansions.py",),
    ),
    Mutant(
        "files/jax_export/match_expansions.py",
        "return scaled(build.sub(beside, half))",
        "return build.sub(beside, half)",
        ("tests/files/test_expansions.py",),
    ),
    Mutant(
        "autodiff/pending.py",
        "return build.add(emitted(known), emitted(ct))",
        "return emitted(ct)",
        rules_of_users("custom_jvp-vjp"),
    ),
    Mutant(
        "autodiff/reverse.py",
        "for record in reversed(records):",
        "for record in records:",
        rules_of_users("custom_jvp-vjp"),
    ),
    Mutant(
        "autodiff/reachable_calls.py",
        "or view.closed_over > 0",
        "",
        ("tests/passes/test_meetings.py",),
    ),
    Mutant(
        "autodiff/reachable_calls.py",
        "i >= own and v in moving",
        "v in moving",
        ("tests/passes/test_meetings.py",),
    ),
    Mutant(
        "frontend/rules/stage_all.py",
        "return len(self.rules.linked.functions) > linked",
        "return False",
        ("tests/passes/test_meetings.py",),
    ),
    Mutant(
        "frontend/rules/stage_all.py",
        "            call.update(**self.rules.transposes(self.table[call.rule_key]))",
        "            pass",
        ("tests/passes/test_meetings.py",),
    ),
    Mutant(
        "frontend/rules/stage_all.py",
        "if self.wanted[key][:2] != known[:2]:",
        "if False:",
        ("tests/files/test_refusals.py",),
    ),
    Mutant(
        "autodiff/reachable_calls.py",
        'rule.startswith("transpose") == is_odd',
        "not is_odd",
        ("tests/passes/test_meetings.py", "tests/files/test_derivatives.py"),
    ),
    Mutant(
        "autodiff/reachable_calls.py",
        "self._moving = _Perturbation(functions)",
        "self._moving = Dependence(functions)",
        ("tests/files/test_refusals.py",),
    ),
    Mutant(
        "autodiff/zeros.py",
        "holds(v, {}) and not is_nan(v, functions)",
        "holds(v, {})",
        ("tests/autodiff/test_user_rules.py",),
    ),
    Mutant(
        "autodiff/zeros.py",
        "if not build.inexact(v.type):  # NaN",
        "if False:  # NaN",
        ("tests/autodiff/test_user_rules.py",),
    ),
    Mutant(
        "frontend/rules/wanted_rules.py",
        "self._known.get(alike, perturbed)",
        "perturbed",
        ("tests/files/test_refusals.py",),
    ),
    Mutant(
        "frontend/rules/wanted_rules.py",
        'elif "1" in (joint :=',
        'elif "2" in (joint :=',
        ("tests/files/test_refusals.py",),
    ),
    Mutant(
        "rules/shape.py",
        "if _is_slice(ct, before, starts):",
        "if True:",
        ("tests/rules/test_parts.py",),
    ),
    Mutant(
        "rules/shape.py",
        "same = places == starts and build",
        "same = build",
        ("tests/rules/test_parts.py",),
    ),
    Mutant(
        "rules/shape.py",
        "return list(part.owner.operands) == [whole, *starts]",
        "return v.owner.operands[0] == whole",
        ("tests/rules/test_parts.py",),
    ),
    Mutant(
        "rules/loops/invariants.py",
        "any(self._does_vary[x] for x in inputs)",
        "all(self._does_vary[x] for x in inputs)",
        ("tests/program/test_memory.py", "tests/rules/test_rules_inside_loops.py"),
    ),
    Mutant(
        "autodiff/residuals.py",
        "            self.capacity[b][a] += flow",
        "",
        ("tests/passes/test_minimum_cut.py",),
    ),
    Mutant(
        "autodiff/residuals.py",
        "and 2 * i not in reaches",
        "",
        ("tests/passes/test_minimum_cut.py",),
    ),
    Mutant(
        "passes/rewrites/softplus.py",
        '"GE" if is_first else "LE"',
        '"GE"',
        ("tests/passes/test_simplify.py",),
    ),
    Mutant(
        "passes/rewrites/max_pool.py",
        "which = build.select(stays, which, build.full_like(which, number))",
        "which = build.select(stays, which, build.full_like(which, 1))",
        ("tests/passes/test_simplify.py",),
    ),
    Mutant(
        "passes/as_run.py",
        "has_order(module) or any(map(is_unknown, ops.walk_calls(module)))",
        "has_order(module)",
        ("tests/autodiff/test_user_rules.py",),
    ),
    Mutant(
        "rules/calls/linear_call.py",
        "        return [Refused(missing_map(view))] * len(op.results)",
        "        pass",
        ("tests/autodiff/test_user_rules.py",),
    ),
    Mutant(
        "autodiff/residuals.py",
        "and not len(operation.attributes)",
        "",
        ("tests/passes", "tests/program/test_memory.py"),
    ),
    Mutant(
        "files/vhlo_gaps.py",
        'if name is None or "mhlo.backend_config" in call.attributes:',
        "if name is None:",
        ("tests/files/test_high_level.py",),
    ),
    Mutant(
        "rules/calls/derivative_ops.py",
        'return "" if op.operation.context.is_registered_operation(name) else name',
        "return name",
        ("tests/files/test_high_level.py",),
    ),
    Mutant(
        "_jax/user_rules.py",
        "known = {id(operands[i]): value for i, value in literals.items()}",
        "known = {}",
        ("tests/autodiff/test_user_rules.py",),
    ),
    Mutant(
        "frontend/rules/call_table.py",
        "return types, function, primal, _literals(equation)",
        "return types, function, primal",
        ("tests/autodiff/test_user_rules.py",),
    ),
    Mutant(
        "files/refusals.py",
        "            program.jvp()\n",
        "            pass\n",
        ("tests/files/test_refusals.py",),
    ),
    Mutant(
        "files/refusals.py",
        "        with contextlib.suppress(NotLinearError):\n            program.jvp()\n",
        "        program.jvp()\n",
        ("tests/files/test_refusals.py",),
    ),
    Mutant(
        "files/embedded_constants.py",
        "if _equal(array, other)), name)",
        "if array is other), name)",
        ("tests/files/test_entries.py",),
    ),
    Mutant(
        "files/merge_entries.py",
        "        run_stages(module, PREPARE)\n",
        "        pass\n",
        ("tests/files/test_entries.py",),
    ),
    Mutant(
        "files/loaded_program.py",
        "is_shared=len(entries) > 1",
        "is_shared=False",
        ("tests/files/test_entries.py",),
    ),
    Mutant(
        "program/record.py",
        'changes = {"entries": {}, **changes}\n',
        "pass\n",
        ("tests/files/test_entries.py",),
    ),
    Mutant(
        "rules/calls/find_rule.py",
        'if mask.count("1") > 1:',
        "if False:",
        ("tests/files/test_refusals.py",),
    ),
    Mutant(
        "autodiff/specialized.py",
        "*map(attributes.get, rule.reads or ()), count)",
        "count)",
        ("tests/passes/test_specialized.py",),
    ),
    Mutant(
        "autodiff/specialized.py",
        'moving = "y" if i is None else "x" if j is None else "xx" if i == j else "xy"',
        'moving = "xx" if i == j else "xy"',
        ("tests/passes/test_specialized.py",),
    ),
    Mutant(
        "autodiff/specialized.py",
        'else "xx" if i == j else "xy"',
        'else "xy"',
        ("tests/passes/test_specialized.py",),
    ),
    Mutant(
        "autodiff/specialized.py",
        "*(i is None for i in places), *map(given.index, given)",
        "*map(given.index, given)",
        ("tests/passes/test_specialized.py",),
    ),
    Mutant(
        "autodiff/specialized.py",
        "*(i is None for i in places), *map(given.index, given)",
        "*(i is None for i in places)",
        ("tests/passes/test_specialized.py",),
    ),
    Mutant(
        "autodiff/specialized.py",
        "kind = first if rule.alike else kind_of[result.type]",
        "kind = first",
        ("tests/passes/test_specialized.py",),
    ),
    Mutant(
        "autodiff/residuals.py",
        "if v in self.exact or isinstance(v, ir.BlockArgument):",
        "if isinstance(v, ir.BlockArgument):",
        ("tests/passes/test_compared.py",),
    ),
    Mutant(
        "autodiff/residuals.py",
        "        if asks_for_equality(operation):\n",
        "        if False:\n",
        ("tests/passes/test_compared.py",),
    ),
    Mutant(
        "rules/calls/derivative_ops.py",
        "asks = diff.found_in(diff.function(bwd), asks_for_equality) is not None",
        "asks = False",
        ("tests/passes/test_compared.py",),
    ),
    Mutant(
        "autodiff/reverse.py",
        "self.compared.update(values[i] for i in compared)",
        "pass",
        ("tests/passes/test_compared.py",),
    ),
    Mutant(
        "autodiff/specialized.py",
        "return () if rule.variant is None else None",
        "return ()",
        ("tests/rules/test_refusals.py",),
    ),
    Mutant(
        "_jax/scans.py",
        "left = _hlo.subtract(_integer(length), counter)",
        "left = counter",
        ("tests/frontend/test_lowering.py",),
    ),
    Mutant(
        "autodiff/specialized.py",
        "same = [values[operands.index(v)] for v in operands]",
        "same = values",
        ("tests/passes/test_specialized.py",),
    ),
    Mutant(
        "autodiff/specialized.py",
        "found = [Constant(*constants[v]) for v in used]",
        "found = [Constant(*constants[v]) for v in reversed(used)]",
        ("tests/passes/test_specialized.py",),
    ),
    Mutant(
        "autodiff/specialized.py",
        "return any(found[i] != cts[0] for i in gives)",
        "return all(found[i] != cts[0] for i in gives)",
        ("tests/passes/test_specialized.py",),
    ),
    Mutant(
        "autodiff/specialized.py",
        "if rule.copies and any(name not in rule.reads for name in attributes):",
        "if False:",
        ("tests/passes/test_specialized.py",),
    ),
    Mutant(
        "autodiff/specialized.py",
        "copy.location = build.here.loc",
        "pass",
        ("tests/passes/test_specialized.py",),
    ),
    Mutant(
        "autodiff/specialized.py",
        "[list(given).index(found)]",
        "[0]",
        ("tests/passes/test_specialized.py",),
    ),
    Mutant(
        "autodiff/forward.py",
        "del self.active[result], self.kinds[place]",
        "self._tangents.append(self._tangents[0])",
        ("tests/passes/test_specialized.py",),
    ),
    Mutant(
        "autodiff/forward.py",
        "if some_refused and (refused := _refused(given)):",
        "if False:",
        (
            "tests/autodiff/test_user_rules.py::"
            "test_a_bwd_that_is_not_linear_is_no_error_where_its_derivative_is_stopped",
        ),
    ),
    Mutant(
        "rules/reduction.py",
        "return CONSTRAINED_SUM",
        "return SUM",
        ("tests/passes/test_specialized.py",),
    ),
    Mutant(
        "autodiff/specialized.py",
        "if name not in (rule.reads or ()):",
        "if False:",
        ("tests/passes/test_specialized.py",),
    ),
    Mutant(
        "autodiff/reverse.py",
        "cts[place] = new",
        "cts[places[0]] = new",
        ("tests/passes/test_specialized.py",),
    ),
    Mutant(
        "autodiff/zeros.py",
        "*captured], not is_sum",
        "*captured], False",
        ("tests/passes/test_zeros.py",),
    ),
    Mutant(
        "autodiff/reverse.py",
        "if op.name not in _MARK_WITH_NAN or not is_nan(v, functions):",
        "if True:",
        rules_of_users("a rule that takes elements-vjp"),
    ),
    Mutant(
        "autodiff/functions.py",
        "lost = _dependent(diff, block, [*linear, *stand_ins], may_lose)",
        "pass",
        ("tests/passes/test_not_linear.py",),
    ),
    Mutant(
        "autodiff/functions.py",
        "if all(i < may_lose for i in lost):",
        "if True:",
        ("tests/passes/test_not_linear.py",),
    ),
    Mutant(
        "autodiff/forward.py",
        "operands += captures(operation)",
        "pass",
        flow("cond-jvp", "fori_loop-jvp"),
    ),
    Mutant(
        "rules/calls/derivative_ops.py",
        "total[i] = added(total[i], v, as_given(ct, v.type))",
        "total[-1 - i] = added(total[-1 - i], v, as_given(ct, v.type))",
        rules_of_users("custom_jvp, one operand-vjp", "rules of rules-vjp"),
    ),
    Mutant(
        "rules/calls/linear_call.py",
        "        if op.frame.linear:\n            raise NotLinearError(",
        "        if False:\n            raise NotLinearError(",
        ("tests/passes/test_not_linear.py",),
    ),
    Mutant(
        "rules/calls/linear_call.py",
        'mask = mask_of(op.active[:count]) + "0" * (len(op.operands) - count)\n        _, found',
        'mask = mask_of(op.active[:count]) + "1" * (len(op.operands) - count)\n        _, found',
        rules_of_users("linear_call-jvp"),
    ),
    Mutant(
        "rules/calls/func_call.py",
        'fenced = build.emit("stablehlo.optimization_barrier"',
        'fenced = build.emit("stablehlo.tuple"',
        rules_of_users("checkpoint-vjp"),
    ),
    Mutant(
        "rules/branches.py",
        "            flags[i] |= v in active",
        "            flags[i] &= v in active",
        flow("cond-vjp", "cond in scan-vjp"),
    ),
    Mutant(
        "rules/loops/while_loop.py",
        "last = build.sub(self.total, 1)",
        "last = self.total",
        flow("fori_loop-vjp"),
    ),
    Mutant(
        "rules/loops/while_loop.py",
        "grown = [c or y in active for c, y in zip(carries, yields, strict=True)]",
        "grown = carries",
        flow("a carry that becomes active-jvp", "a carry that becomes active-vjp"),
    ),
    Mutant(
        "rules/loops/while_loop.py",
        "grown = carries | {i for i, a in enumerate(arguments) if a in found}",
        "grown = carries",
        flow("carries that swap-vjp"),
    ),
    Mutant(
        "rules/loops/while_loop.py",
        "return i if counter.start == 0 else build.add(i, counter.start)",
        "return i",
        flow("while, counting up in steps-vjp"),
    ),
    Mutant(
        "rules/loops/while_loop.py",
        "return build.sub(build.integer(counter.start, i), i)",
        "return build.sub(build.integer(0, i), i)",
        flow("while, counting down in steps-vjp"),
    ),
    Mutant(
        "ir/loop_carries.py",
        "if counter is None or (counter.start, counter.step) != (0, 1):",
        "if counter is None:",
        flow("fori_loop, start not 0-vjp", "while, counting down in steps-vjp"),
    ),
    Mutant(
        "ir/while_loops.py",
        '"LT": lambda a, b, s: max(0, -(-(b - a) // s)) if s > 0 else None,',
        '"LT": lambda a, b, s: max(0, (b - a) // s + 1) if s > 0 else None,',
        flow("fori_loop-vjp"),
    ),
    Mutant(
        "ir/while_loops.py",
        '"GT": lambda a, b, s: max(0, -(-(a - b) // -s)) if s < 0 else None,',
        '"GT": lambda a, b, s: max(0, (a - b) // -s) if s < 0 else None,',
        flow("while, counting down in steps-vjp"),
    ),
    Mutant(
        "autodiff/checkpoints.py",
        "now = build.add(first, number)",
        "now = number",
        ("tests/program/test_memory_budget.py::test_counters_of_a_loop_in_blocks",),
    ),
    Mutant(
        "autodiff/checkpoints.py",
        "return build.sub(build.integer(row - (length - 1), first), first)",
        "return build.sub(build.integer(row, first), first)",
        ("tests/program/test_memory_budget.py::test_a_loop_in_blocks_computes_the_same",),
    ),
    Mutant(
        "autodiff/schedules.py",
        "splits = loop.trip_count is not None and count > 3 and not self.acts(operation)",
        "splits = loop.trip_count is not None and count > 3",
        ("tests/program/test_memory_budget.py::test_loops_with_effects_stay_whole",),
    ),
    Mutant(
        "autodiff/schedules.py",
        "            yield from _used_inside(operation)",
        "            pass",
        ("tests/program/test_memory_budget.py::test_the_estimate_is_what_the_table_says",),
    ),
    Mutant(
        "autodiff/schedules.py",
        "_few(total | row for ",
        "_few(total + row for ",
        ("tests/program/test_memory_budget.py::test_the_estimate_is_what_the_table_says",),
    ),
    Mutant(
        "rules/calls/func_call.py",
        "        fenced = _through_branch(fenced, ",
        "        _through_branch(fenced, ",
        ("tests/program/test_memory_budget.py::test_a_gradient_keeps_within_a_budget",),
    ),
    Mutant(
        "rules/loops/unbounded.py",
        "goal = build.add(mark, half)",
        "goal = build.add(build.add(mark, half), 1)",
        flow("while, data-dependent-vjp", "fori_loop, run-time bounds, nested-vjp"),
    ),
    Mutant(
        "rules/loops/unbounded.py",
        "self.again = without_effects(self.diff, self.pair.forward)",
        "self.again = self.pair.forward",
        ("tests/program/test_program.py::test_an_effect_of_a_loop_without_a_bound_happens_once",),
    ),
    Mutant(
        "passes/order_effects.py",
        "    operation.operands[index] = token\n",
        "    operation.operands[index] = operation.operands[index]\n",
        (
            "tests/program/test_program.py::test_effects_have_jax_s_order_wherever_they_are",
            "tests/program/test_program.py::test_a_condition_has_effects_in_order",
        ),
    ),
    Mutant(
        "rules/manual_computation.py",
        "self.frame.seed(out, mine if copies == 1 else build.mul(mine, 1.0 / copies))",
        "self.frame.seed(out, mine)",
        ("tests/rules/test_shard_maps.py",),
    ),
    Mutant(
        "autodiff/pending.py",
        "        if known.__class__ is Total:\n",
        "        if False:\n",
        (
            "tests/autodiff/test_wide_cotangents.py::test_they_are_handed_on_where_a_rule_makes_them[scan]",
        ),
    ),
    Mutant(
        "frontend/rules/stage_all.py",
        "while self.table.hands_on and self._stage_for_types():",
        "while False and self._stage_for_types():",
        (
            "tests/autodiff/test_wide_cotangents.py::test_a_file_has_the_rules_for_their_types[layers]",
        ),
    ),
    Mutant(
        "frontend/rules/wanted_rules.py",
        "for chosen in (None, *((i,) for i in outs if len(outs) > 1)):",
        "for chosen in (None,):",
        (
            "tests/autodiff/test_wide_cotangents.py::test_a_file_has_the_rules_for_each_result_alone",
        ),
    ),
    Mutant(
        "rules/calls/checkpoint_policy.py",
        "            _return_marked(diff, operation)\n",
        "            pass\n",
        ("tests/program/test_memory.py::test_a_policy_reaches_into_branches_and_loops_that_count",),
    ),
    Mutant(
        "rules/loops/unbounded.py",
        "sums = [build.add(a, by_value[v])",
        "sums = [by_value[v]",
        ("tests/passes/test_captured.py",),
    ),
    Mutant(
        "frontend/keep.py",
        "        if not _carries_derivative(equation) or _lacks_jvp(equation):",
        "        if True:",
        (
            "tests/frontend/test_keep.py"
            "::test_primitives_whose_lowering_loses_the_derivative_are_kept",
        ),
    ),
    Mutant(
        "frontend/native.py",
        "return ops_of(equation, debug_info, surroundings) <= may_become | BROADCASTS",
        "return True  # as if lgamma were one CHLO op in every version of JAX",
        ("tests/frontend/test_native.py",),
    ),
    Mutant(
        "program/as_jax/evaluate.py",
        "if is_foreign(operation) or lacks_rule(operation):",
        "if is_foreign(operation):",
        ("tests/rules/test_as_jax.py",),
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
        "autodiff/batch_rules.py",
        "return tuple(d + 1 for d in dims)",
        "return tuple(dims)",
        items("stablehlo.reduce-add", "stablehlo.transpose"),
    ),
    Mutant(
        "rules/sorting.py",
        "build.i64(dimension + 1 if dimension >= 0 else dimension)",
        "build.i64(dimension)",
        items("stablehlo.sort-one"),
    ),
    Mutant(
        "rules/indexing.py",
        'return build.flag(op, "indices_are_sorted") and not batched',
        "return True",
        ("tests/passes/test_vmap_indexing.py",),
    ),
    Mutant(
        "rules/shape.py",
        "indices = indexing.clamp(indices, op.shape(0), dims.batched(False, True), op.shape(1))",
        "pass",
        ("tests/passes/test_vmap_indexing.py",),
    ),
    Mutant(
        "rules/loops/while_loop.py",
        "build.select(along(go, build.shape(y)[1:]), y, x) if flag else y",
        "y",
        ITEMS_BY_THEMSELVES,
    ),
    Mutant(
        "rules/loops/while_loop.py",
        "moving = [v for v in own if v not in fixed or size[v] <= room]",
        "moving = []",
        (
            "tests/program/test_batches.py::test_an_item_that_has_left_a_loop_makes_no_gradient_of_a_sum_nan",
        ),
    ),
    Mutant(
        "rules/branches.py",
        "results = found[-1]  # that of any other index",
        "results = found[0]",
        ITEMS_BY_THEMSELVES,
    ),
    Mutant(
        "rules/branches.py",
        "moved = build.select(along(flag, build.shape(t)[1:]), t, build.zeros(t.type))",
        "moved = t",
        ("tests/program/test_batches.py::test_a_branch_not_taken_makes_no_gradient_of_a_sum_nan",),
    ),
    Mutant(
        "autodiff/batching.py",
        "else build.reduce_sum(build.convert(known, number), (0,))",
        "else build.reduce(build.convert(known, number), 0, (0,), 'stablehlo.maximum')",
        RULES_OF_BATCHES,
    ),
    Mutant(
        "rules/loops/while_loop.py",
        "if apart and frame.diff.found_in(",
        "if frame.diff.found_in(",
        ("tests/program/test_batches.py::test_an_item_that_has_left_a_loop_calls_nobody",),
    ),
    Mutant(
        "autodiff/batching.py",
        "forward, found = batching.function(names[0], self.flags, wanted)",
        "forward, found = batching.function(names[0], self.flags)",
        ("tests/program/test_batches.py::test_a_result_that_all_items_share_has_its_rule_too",),
    ),
    Mutant(
        "rules/calls/derivative_ops.py",
        "        found[ops.RULE] = build.string(key)\n",
        "        del found\n        return ir.DictAttr.get({}, op.operation.context)\n",
        RULES_OF_BATCHES,
    ),
)

VALUES_OF_RULES = "tests/frontend/test_rules_that_close_over.py"

AROUND = (
    Mutant(
        "_jax/tracing.py",
        "if setting.value != value:",
        "if False:",
        ("tests/frontend/test_rules.py",),
    ),
    Mutant(
        "_jax/references.py",
        "return jaxprs.with_like_equations(jaxpr, [_hold(each) for each in jaxpr.eqns])",
        "return jaxpr",
        ("tests/frontend/test_mutable_arrays.py::test_rules_stay_and_answer",),
    ),
    Mutant(
        "api/linear_maps.py",
        "place.addupdate(converted(ct, place.dtype))",
        "place[...] = ct",
        ("tests/frontend/test_mutable_arrays.py",),
    ),
    Mutant(
        "_jax/call_operands.py",
        "[i if i is None else i + count for i in forwarded]",
        "forwarded",
        (f"{VALUES_OF_RULES}::test_by_what_only_the_rule_uses",),
    ),
    Mutant(
        "rules/windows.py",
        "if window.has_gaps() and not _is_neutral(op):",
        "if False:",
        ("tests/frontend/test_native.py",),
    ),
    Mutant(
        "frontend/rules/trace_rule.py",
        "[None if is_zero else next(given) for is_zero in zeros]",
        "[next(given, None) for _ in zeros]",
        (
            "tests/autodiff/test_user_rules.py::test_a_jvp_rule_may_say_that_a_result_has_no_tangent",
        ),
    ),
    Mutant(
        "_jax/user_rules.py",
        "[next(own) if i is None else operands[i] for i in forwarded]",
        "[next(own, operands[0]) for _ in forwarded]",
        (
            "tests/autodiff/test_user_rules.py::test_a_vjp_rule_runs_once_whatever_its_residuals_are",
        ),
    ),
    Mutant(
        "_jax/user_rules.py",
        "found[places[id(v)]] for v in named]",
        "found[i] for i, v in enumerate(named)]",
        (
            "tests/autodiff/test_user_rules.py::test_a_vjp_rule_runs_once_whatever_its_residuals_are",
        ),
    ),
    Mutant(
        "frontend/rules/trace_rule.py",
        " or len(chosen) < len(rule.call.in_avals):",
        ":",
        ("tests/autodiff/test_user_rules.py::test_a_jvp_rule_sees_which_tangents_are_zero",),
    ),
    Mutant(
        "frontend/rules/kept_call.py",
        "            self.call.eqns[0].ctx.manager,",
        "",
        ("tests/devices/test_explicit_meshes.py", "tests/frontend/test_settings_of_parts.py"),
    ),
    Mutant(
        "_jax/tracing.py",
        "wide if wide is not self and any(map(jaxprs.is_wide, types)) else self",
        "self",
        ("tests/frontend/test_settings_of_parts.py",),
    ),
    Mutant(
        "rules/calls/find_rule.py",
        "if (mask, present) == (covered, given) if view.sees_zeros else within(mask, covered):",
        "if within(mask, covered):",
        ("tests/files/test_rules_that_see_zeros.py",),
    ),
    Mutant(
        "frontend/rules/wanted_rules.py",
        '            self._add_for_other_sets(found, rule, "jvp")',
        "            pass",
        ("tests/files/test_rules_that_see_zeros.py",),
    ),
    Mutant(
        "frontend/rules/leaked_values.py",
        "array if is_same and is_array else None",
        "None",
        ("tests/frontend/test_rules_that_close_over.py",),
    ),
    Mutant(
        "frontend/closures/reassigned.py",
        "if (store > place and",
        "if (False and",
        (
            f"{VALUES_OF_RULES}::test_a_variable_that_is_assigned_again_has_its_last_value_and_a_warning",
        ),
    ),
    Mutant(
        "rules/calls/find_rule.py",
        "if any(op.frame.diff.function_activity(view.decomposition, closed_over, op.frame)):",
        "if False:",
        (f"{VALUES_OF_RULES}::test_by_what_it_closes_over_is_an_error",),
    ),
    Mutant(
        "api/named_axes.py",
        "_times(gradient, axis.size) if dim is None",
        "gradient if dim is None",
        ("tests/api/test_named_axes.py",),
    ),
    Mutant(
        "api/named_axes.py",
        "if axis.name in axes and of_primal is None:",
        "if axis.name in axes:",
        ("tests/api/test_named_axes.py",),
    ),
)

SUMS = "tests/rules/test_sums.py"

LOOPS = (
    Mutant(
        "rules/loops/sums.py",
        "return Slots(buffer, dims, ends == (0, last))",
        "return Slots(buffer, dims, False)",
        (SUMS,),
    ),
    Mutant(
        "rules/loops/sums.py",
        "return found if v == first and uses(v) == 1 else []",
        "return found if v == first else []",
        (SUMS,),
    ),
    Mutant(
        "rules/loops/sums.py",
        "if size > min(self.room, total if summand.slots is not None else total // MUCH_LARGER):",
        "if size > (total if summand.slots is not None else total // MUCH_LARGER):",
        (SUMS,),
    ),
    Mutant(
        "autodiff/slices.py",
        "if first < end:",
        "if False:",
        ("tests/rules/test_parts.py",),
    ),
    Mutant(
        "autodiff/slices.py",
        "if total is None and not others and len(parts) > 1:",
        "if not others and len(parts) > 1:",
        ("tests/rules/test_parts.py",),
    ),
    Mutant(
        "rules/calls/checkpoint_policy.py",
        "    _replace(value, slot)",
        "    return",
        ("tests/program/test_memory.py",),
    ),
    Mutant(
        "rules/custom_calls.py",
        "return _PLACEMENT if target == PLACEMENT else _ANNOTATION",
        "return _ANNOTATION",
        ("tests/devices/test_offload.py::test_moves_of_the_users",),
    ),
    Mutant(
        "_jax/lowering.py",
        "all_default_mem_kind=False,",
        "all_default_mem_kind=True,",
        ("tests/devices/test_offload.py::test_moves_of_the_users",),
    ),
    Mutant(
        "rules/calls/checkpoint_policy.py",
        "return [mark for mark in _marks(block) if _move(mark) is None]",
        "return [mark for mark in _marks(block) if memory_of(mark) is None]",
        ("tests/devices/test_offload.py",),
    ),
    Mutant(
        "autodiff/functions.py",
        "    placements.note_results(diff.function(entry), diff.functions)\n",
        "",
        ("tests/devices/test_offload.py::test_halves_hand_on_what_is_on_the_host",),
    ),
    Mutant(
        "autodiff/residuals.py",
        "needed = dict.fromkeys(map(self._current, self.placeholders))",
        "needed = self.placeholders",
        ("tests/program/test_memory.py",),
    ),
)

KERNELS = (
    Mutant(
        "_jax/kernels.py",
        "return references.passing(equation)",
        "return equation",
        ("tests/frontend/test_kernels.py",),
    ),
    Mutant(
        "_jax/kernels.py",
        "if near is held:",
        "if True:",
        ("tests/frontend/test_kernels.py",),
    ),
    Mutant(
        "_jax/kernels.py",
        "    return value, tangents[1] * jnp.where(jnp.isnan(value), value, jnp.ones_like(value))",
        "    return value, tangents[1]",
        ("tests/frontend/test_kernels.py",),
    ),
    Mutant(
        "_jax/kernels.py",
        'if equation.primitive.name != "run_scoped" or equation.params["collective_axes"]:',
        "if True:",
        ("tests/frontend/test_kernels.py",),
    ),
)

NANS = (
    Mutant(
        "program/nans/links.py",
        "operands[0] if i == 1 else ~operands[0]",
        "operands[0]",
        ("tests/program/test_find_nan.py",),
    ),
    Mutant(
        "program/nans/links.py",
        "lambda ends: np.broadcast_to(np.expand_dims(ends, dimensions), inner)",
        "lambda ends: np.full(inner, ends.max())",
        ("tests/program/test_find_nan.py",),
    ),
    Mutant(
        "program/nans/links.py",
        "if (bad(runner.alone(op, operands)[result]) & ~explained).any():",
        "if False:",
        ("tests/program/test_find_nan.py",),
    ),
    Mutant(
        "program/nans/walk.py",
        "return not is_written(op.operands[operand]) or is_written(op.results[0])",
        "return True",
        ("tests/program/test_find_nan.py",),
    ),
    Mutant(
        "program/nans/walk.py",
        "born = np.where(link.forward(self._bad(operands[link.operand])), 0, born)",
        "born = np.where(self._bad(operands[link.operand]).any(), 0, born)",
        ("tests/program/test_find_nan.py",),
    ),
    Mutant(
        "program/nans/search.py",
        "alone = [x and _only(x, end) for x in wanted]",
        "alone = wanted",
        ("tests/program/test_find_nan.py",),
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
        "testing/slopes.py",
        "np.fmax(least, further)",
        "least",
        ("tests/testing/test_slopes.py::test_the_error_bounds_what_is_wrong",),
    ),
    Mutant(
        "testing/slopes.py",
        "bends = apart > ",
        "bends = np.inf * apart < ",
        right("kinks_in_a_sum"),
    ),
    Mutant(
        "testing/judgements.py",
        "if limits.iterates:\n            error",
        "if False:\n            error",
        right("a_bisection"),
    ),
    Mutant(
        "testing/judgements.py",
        " & (np.abs(value) < limits.most)",
        "",
        planted("stopped_in_a_forward_rule"),
    ),
    Mutant(
        "testing/comparison.py",
        "narrow = jnp.finfo(found.dtype).eps > ",
        "narrow = False and ",
        planted("a_cotangent_of_half_precision"),
    ),
    Mutant(
        "testing/comparison.py",
        "np.where(_known(measured, k), slope.error, np.inf)",
        "slope.error",
        right("an_infinite_slope_at_zero"),
    ),
    Mutant(
        "testing/check.py",
        "self.special and not subject.has_loops",
        "self.special",
        right("an_iteration_of_a_given_number_of_steps"),
    ),
    Mutant("testing/check.py", "i >= hidden and is_inexact", "is_inexact", right("kinks_in_a_sum")),
    Mutant(
        "testing/check.py",
        "any(each.moves[i] for each in met)",
        "False",
        planted("closes_over_a_differentiated_value"),
    ),
)

SHOWN = ("tests/tools/test_view.py", "tests/tools/test_dump.py::test_files_have_all_constants")
VIEWS = (
    Mutant("ir/costs.py", "2 * count * _contracted(", "count * _contracted(", SHOWN),
    Mutant("ir/costs.py", "inner *= read_loop(operation).slots or 1", "inner *= 1", SHOWN),
    Mutant("ir/printed.py", "if not _INSIDE.match(line):", "if True:", SHOWN),
    Mutant("tools/view/listing.py", "dict.fromkeys(others)", "dict.fromkeys(others[1:])", SHOWN),
    Mutant("tools/view/listing.py", "(block.arguments)[first:]", "(block.arguments)", SHOWN),
    Mutant("tools/view/explorer.py", "1 <= op.depth <= DEEPEST", "1 <= op.depth", SHOWN),
    Mutant("tools/dump.py", "MOST_ELEMENTS if folder is None else None", "MOST_ELEMENTS", SHOWN),
)

PLUGINS = "tests/tools/test_plugins.py::test_"
REDUCE = "tests/tools/test_reduce.py::test_"
TOOLS = (
    Mutant(
        "rules/custom_calls.py",
        'rule = RULES.get(f"{_CALL} @{target}")',
        "rule = None",
        (f"{PLUGINS}a_rule_for_the_custom_calls_of_one_target",),
    ),
    Mutant(
        "passes/plugins.py",
        "if point.name in found and found[point.name] != point:",
        "if False:",
        (f"{PLUGINS}a_broken_plug_in_is_one_error",),
    ),
    Mutant(
        "tools/reduction.py",
        "                edit(candidate)\n            verify_module(candidate)",
        "                edit(candidate)",
        (f"{REDUCE}each_module_that_is_tried_is_valid_and_the_same_each_time",),
    ),
    Mutant(
        "tools/reduction.py",
        "range(1, len(every[number].operands) + 2)",
        "range(1, 1)",
        (f"{REDUCE}an_op_is_replaced_by_any_operand_an_argument_or_zero",),
    ),
    Mutant(
        "tools/reduction.py",
        "    simple_constants,\n    attributes,\n    shapes,",
        "",
        (f"{REDUCE}one_op_in_two_hundred_is_found",),
    ),
)
AS_JAX = (
    Mutant(
        "program/as_jax/collectives.py",
        "if sorted(groups) == sorted(given):",
        "if len(groups) == len(given):",
        ("tests/rules/test_shard_maps.py::test_every_derivative_of_shard_map_is_that_of_jax",),
    ),
    Mutant(
        "program/as_jax/derivative_ops.py",
        "return SymbolicZero(jax.typeof(tangent)) if is_zero else tangent",
        "return tangent",
        ("tests/api/test_as_jax.py::test_a_rule_that_gives_zero_ends_the_flow_of_derivatives",),
    ),
    Mutant(
        "program/as_jax/source_lines.py",
        "for frame in frames_of(location):",
        "for frame in ():",
        ("tests/api/test_as_jax.py::test_equations_have_the_lines_of_the_program",),
    ),
    Mutant(
        "program/as_jax/custom_calls.py",
        "if routine in QR or routine not in ROUTINES or not is_laid_out(op.operation, True):",
        "if True:",
        ("tests/api/test_as_jax.py::test_a_routine_of_lapack_is_the_primitive_of_jax",),
    ),
)


MUTANTS = (
    FORMULAS + DRIVERS + BATCHES + AROUND + LOOPS + KERNELS + NANS + CHECKS + VIEWS + TOOLS + AS_JAX
)
