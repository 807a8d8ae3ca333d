"""Traits of ops: every op is in the table, and what it says holds when the op runs."""

from __future__ import annotations

import pytest
from jaxlib.mlir.dialects import _chlo_ops_gen, _stablehlo_ops_gen

import pullback as pb
from pullback.autodiff.registry import RULES, load_all
from pullback.ir import traits
from tests.autodiff.test_pending import operands_of

load_all()
OF_RESULT_OR_OPERAND = sorted(
    name
    for name, rule in RULES.items()
    if rule.family == "elementwise" and name in traits.ELEMENTWISE and not rule.linear([True])
)


@pytest.mark.parametrize("dialect", [_stablehlo_ops_gen, _chlo_ops_gen])
def test_each_op_of_a_dialect_is_in_the_table(dialect):
    classes = [each for each in vars(dialect).values() if isinstance(each, type)]
    named = {each.OPERATION_NAME for each in classes if hasattr(each, "OPERATION_NAME")}
    assert len(named) > 40
    assert named <= traits.OPS, "say what holds of the new ops in pullback/ir/traits.py"


def test_a_table_of_traits_says_one_thing_of_each_op():
    names = [word for _, row in traits._TABLE for word in row.split() if not word.endswith(":")]
    assert len(names) == len(traits.OPS)
    assert traits.VIEW <= traits.CHEAP
    assert traits.MOVES <= traits.CHOOSES
    assert set(traits.DATA) <= traits.MOVES


def test_rules_that_act_by_element_are_of_ops_that_do():
    found = {name for name, rule in RULES.items() if rule.elementwise and name in traits.OPS}
    assert found - traits.ELEMENTWISE == {"stablehlo.optimization_barrier"}  # of several results


TEXT = """
func.func public @main(%x: {type}) -> {type} {{
  %y = "{op}"(%x) : ({type}) -> {type}
  return %y : {type}
}}"""


@pytest.mark.parametrize("op", OF_RESULT_OR_OPERAND)
def test_a_rule_says_if_its_derivative_is_computed_of_the_result(op):
    if len(operands_of(op)[0].split(",")) > 1:
        assert not RULES[op].by_result
        return
    program = pb.load(TEXT.format(op=op, type="tensor<3xf64>").encode())
    text = str(program.jvp().module)
    entry = text[text.index("@main") :]
    if "%arg1" not in entry.split(">)", 1)[1]:
        return  # no derivative
    uses_operand = entry.count("%arg0") > 2  # its declaration and the op itself
    assert RULES[op].by_result is not uses_operand, entry
