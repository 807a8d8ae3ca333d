"""The solvers of dataflow analyses: what each op of control flow forwards, fixpoints, summaries."""

from __future__ import annotations

import pytest

from pullback import _jax
from pullback._jax import ir
from pullback.ir.dataflow import BackwardAnalysis, ForwardAnalysis, uses
from pullback.ir.dead_ops import Liveness
from pullback.ir.dependence import dependents
from pullback.ir.regions import operations
from pullback.ir.symbols import called, functions
from pullback_runtime._jax import operations_named

LOOP = """
    %r:4 = stablehlo.while(%i = %n, %a = %x, %b = %y, %c = %z)
        : tensor<i32>, tensor<f32>, tensor<f32>, tensor<f32>
    cond {
      %q = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %q : tensor<i1>
    } do {
      %s = stablehlo.add %a, %x : tensor<f32>
      stablehlo.return %i, %s, %a, %b : tensor<i32>, tensor<f32>, tensor<f32>, tensor<f32>
    }
"""
IF = """
    %r:2 = "stablehlo.if"(%p) ({
      stablehlo.return %x, %x : tensor<f32>, tensor<f32>
    }, {
      %s = stablehlo.sine %y : tensor<f32>
      stablehlo.return %s, %x : tensor<f32>, tensor<f32>
    }) : (tensor<i1>) -> (tensor<f32>, tensor<f32>)
"""
CASE = """
    %r:2 = "stablehlo.case"(%n) ({
      stablehlo.return %x, %z : tensor<f32>, tensor<f32>
    }, {
      stablehlo.return %y, %z : tensor<f32>, tensor<f32>
    }) : (tensor<i32>) -> (tensor<f32>, tensor<f32>)
"""
CALL = "%r:2 = call @swapped(%x, %y) : (tensor<f32>, tensor<f32>) -> (tensor<f32>, tensor<f32>)"
COMPOSITE = """
    %r:2 = stablehlo.composite "acme.swapped" %x, %y {decomposition = @swapped}
        : (tensor<f32>, tensor<f32>) -> (tensor<f32>, tensor<f32>)
"""
RECURSIVE = CALL.replace("swapped", "recursive")
MANUAL = """
    %r:2 = sdy.manual_computation(%x, %y) in_shardings=[<@mesh, []>, <@mesh, []>]
        out_shardings=[<@mesh, []>, <@mesh, []>] manual_axes={"i"}
        (%a: tensor<f32>, %b: tensor<f32>) {
      %s = stablehlo.sine %b : tensor<f32>
      sdy.return %s, %a : tensor<f32>, tensor<f32>
    } : (tensor<f32>, tensor<f32>) -> (tensor<f32>, tensor<f32>)
"""
BARRIER = "%r:2 = stablehlo.optimization_barrier %x, %y : tensor<f32>, tensor<f32>"
OTHERS = """
sdy.mesh @mesh = <["i"=2]>
func.func private @swapped(%x: tensor<f32>, %y: tensor<f32>) -> (tensor<f32>, tensor<f32>) {
  %s = stablehlo.sine %y : tensor<f32>
  return %s, %x : tensor<f32>, tensor<f32>
}
func.func private @recursive(%x: tensor<f32>, %y: tensor<f32>) -> (tensor<f32>, tensor<f32>) {
  %r:2 = call @recursive(%y, %x) : (tensor<f32>, tensor<f32>) -> (tensor<f32>, tensor<f32>)
  return %r#0, %x : tensor<f32>, tensor<f32>
}
"""


def parsed(body: str) -> tuple[ir.Module, dict[str, ir.Operation], ir.Block, ir.Operation]:
    """A module whose `@main` takes x, y, z, n, p; its functions, the block, the op of interest."""
    module = ir.Module.parse(
        f"""
        func.func @main(%x: tensor<f32>, %y: tensor<f32>, %z: tensor<f32>, %n: tensor<i32>,
                        %p: tensor<i1>) -> tensor<f32> {{
          {body}
          return %x : tensor<f32>
        }}
        {OTHERS}
        """,
        _jax.context(),
    )
    table = functions(module)
    block = table["main"].regions[0].blocks[0]
    return module, table, block, operations(block)[-2]


DEPENDS = {
    # each argument alone: x, y, z, n, p; which results depend on it
    "while": (LOOP, ["0111", "0011", "0001", "1111", "0000"]),
    "if": (IF, ["11", "10", "00", "00", "11"]),
    "case": (CASE, ["10", "10", "01", "11", "00"]),
    "call": (CALL, ["01", "10", "00", "00", "00"]),
    "composite": (COMPOSITE, ["01", "10", "00", "00", "00"]),
    "recursive call": (RECURSIVE, ["11", "10", "00", "00", "00"]),
    "manual computation": (MANUAL, ["01", "10", "00", "00", "00"]),
    "barrier": (BARRIER, ["10", "01", "00", "00", "00"]),
}


@pytest.mark.parametrize("name", DEPENDS)
def test_a_result_depends_on_what_control_flow_forwards_to_it(name: str) -> None:
    text, expected = DEPENDS[name]
    _module, table, block, operation = parsed(text)
    for argument, flags in zip(block.arguments, expected, strict=True):
        found = dependents([argument], block, table)
        assert [r in found for r in operation.results] == [flag == "1" for flag in flags]


def test_what_depends_inside_of_functions_and_blocks_is_found_too() -> None:
    for text in (CALL, MANUAL, IF):
        _module, table, block, operation = parsed(text)
        inside = table["swapped"] if text is CALL else operation
        (sine,) = operations_named(inside, "stablehlo.sine")
        assert sine.results[0] in dependents([block.arguments[1]], block, table)
        assert sine.results[0] not in dependents([block.arguments[0]], block, table)


class Origins(ForwardAnalysis[frozenset]):
    """The positions of the arguments that a value comes of."""

    bottom = frozenset()

    def __init__(self, functions) -> None:
        super().__init__(functions)
        self.entered: list[str] = []

    def join(self, x, y):
        return x | y

    def transfer(self, operation, given, facts):
        return [frozenset().union(*given)] * len(operation.results)

    def block(self, block, given, facts):
        self.entered.append(block.owner.operation.name)
        return super().block(block, given, facts)


def test_facts_of_any_lattice_are_joined_over_iterations_and_branches() -> None:
    for text, expected in (
        (LOOP, [{3}, {0}, {0, 1}, {0, 1, 2}]),
        (IF, [{0, 1}, {0}]),
        (CALL, [{1}, {0}]),
        (MANUAL, [{1}, {0}]),
    ):
        _module, table, block, operation = parsed(text)
        solver, facts = Origins(table), {}
        ends = solver.run(block, [frozenset([i]) for i in range(5)], facts)
        assert [facts[r] for r in operation.results] == expected
        assert ends == [{0}]


def test_a_function_is_analyzed_once_for_each_set_of_facts() -> None:
    calls = [CALL.replace("%r", "%q"), CALL.replace("%x, %y", "%y, %x").replace("%r", "%s"), CALL]
    twice = "\n".join(calls)
    _module, table, block, _ = parsed(twice)
    solver = Origins(table)
    solver.run(block, [frozenset([i]) for i in range(5)], {})
    assert solver.entered.count("func.func") == 1 + 2


class Needed(BackwardAnalysis[bool]):
    """The values that a result needs, also through calls."""

    bottom = False

    def join(self, x, y):
        return x or y

    def decides(self, operation, given):
        return any(given)

    def transfer(self, operation, given, facts):
        return [any(given)] * len(uses(operation))


NEEDS = {
    # each result alone: which of x, y, z, n, p it needs
    "while": (LOOP, ["00010", "10010", "11010", "11110"]),
    "if": (IF, ["11001", "10001"]),
    "case": (CASE, ["11010", "00110"]),
    "call": (CALL, ["01000", "10000"]),
    "composite": (COMPOSITE, ["01000", "10000"]),
    "recursive call": (RECURSIVE, ["11000", "10000"]),
    "manual computation": (MANUAL, ["01000", "10000"]),
}


@pytest.mark.parametrize("name", NEEDS)
def test_what_a_result_needs_is_what_control_flow_forwards_to_it(name: str) -> None:
    text, expected = NEEDS[name]
    _module, table, block, operation = parsed(text)
    for result, flags in zip(operation.results, expected, strict=True):
        found = Needed(table).run(block, [False], facts := {result: True})
        assert found == [flag == "1" for flag in flags]
        assert all(facts[v] for v, flag in zip(block.arguments, flags, strict=True) if flag == "1")


def test_a_call_whose_function_is_not_looked_into_needs_all_its_operands() -> None:
    _module, table, block, operation = parsed(CALL)
    assert called(operation) == "swapped"
    found = Liveness(table).run(block, [False], {operation.results[0]: True})
    assert found == [True, True, False, False, False]
