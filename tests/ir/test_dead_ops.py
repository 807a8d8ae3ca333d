"""Dead code that MLIR's own sweeps keep: loop carries and branch results that nobody reads."""

from __future__ import annotations

import sys

from pullback import _jax
from pullback._jax import ir
from pullback.ir.dead_ops import erase_dead_ops
from pullback.ir.symbols import functions
from pullback.passes.manager import run_pipeline

LOOP = """
func.func @main(%x: tensor<f32>, %dx: tensor<f32>) -> tensor<f32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %r:4 = stablehlo.while(%i = %zero, %a = %x, %da = %dx, %db = %dx)
      : tensor<i32>, tensor<f32>, tensor<f32>, tensor<f32>
  cond {
    %p = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %j = stablehlo.add %i, %one : tensor<i32>
    %s = stablehlo.sine %a : tensor<f32>
    %c = stablehlo.cosine %a : tensor<f32>
    %ds = stablehlo.multiply %c, %db : tensor<f32>
    %de = stablehlo.multiply %c, %da : tensor<f32>
    stablehlo.return %j, %s, %ds, %de : tensor<i32>, tensor<f32>, tensor<f32>, tensor<f32>
  }
  return %r#1 : tensor<f32>
}
"""

BRANCH = """
func.func @main(%p: tensor<i1>, %x: tensor<f32>) -> tensor<f32> {
  %r:2 = "stablehlo.if"(%p) ({
    %s = stablehlo.sine %x : tensor<f32>
    stablehlo.return %x, %s : tensor<f32>, tensor<f32>
  }, {
    %c = stablehlo.cosine %x : tensor<f32>
    stablehlo.return %c, %c : tensor<f32>, tensor<f32>
  }) : (tensor<i1>) -> (tensor<f32>, tensor<f32>)
  return %r#0 : tensor<f32>
}
"""


def swept(text: str) -> tuple[ir.Module, str]:
    with _jax.context():
        module = ir.Module.parse(text)
        table = functions(module)
        erase_dead_ops(table["main"].regions[0].blocks[0], table)
        module.operation.verify()
    return module, str(module)


def test_carries_that_only_feed_one_another_go():
    module, text = swept(LOOP)
    loop = module.body.operations[0].regions[0].blocks[0].operations[3]
    assert loop.operation.name == "stablehlo.while"
    assert len(loop.operation.results) == 2
    assert "sine" in text
    assert "cosine" not in text
    assert "multiply" not in text


NESTED = """
func.func @main(%x: tensor<f32>, %n: tensor<i32>) -> tensor<f32> {
  %r:3 = stablehlo.while(%i = %n, %a = %x, %b = %x) : tensor<i32>, tensor<f32>, tensor<f32>
  cond {
    %p = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %q:3 = stablehlo.while(%j = %i, %c = %a, %d = %b) : tensor<i32>, tensor<f32>, tensor<f32>
    cond {
      %p = stablehlo.compare LT, %j, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %p : tensor<i1>
    } do {
      %s = stablehlo.sine %c : tensor<f32>
      %t = stablehlo.cosine %d : tensor<f32>
      stablehlo.return %j, %s, %t : tensor<i32>, tensor<f32>, tensor<f32>
    }
    stablehlo.return %q#0, %q#1, %q#2 : tensor<i32>, tensor<f32>, tensor<f32>
  }
  return %r#1 : tensor<f32>
}
"""


def test_a_carry_that_only_feeds_a_dead_one_of_an_inner_loop_goes():
    module, text = swept(NESTED)
    loop = module.body.operations[0].regions[0].blocks[0].operations[0].operation
    inner = loop.regions[1].blocks[0].operations[0].operation
    assert [len(loop.results), len(inner.results)] == [2, 2]
    assert "cosine" not in text


def deep(depth: int, i: int = 0) -> str:
    """Return the ops of loops within loops, which carry %a and %b."""
    j = i + 1
    if i == depth:
        return f"""
          %s{i} = stablehlo.sine %a{i} : tensor<f32>
          %t{i} = stablehlo.cosine %b{i} : tensor<f32>"""
    return f"""
      %s{i}, %t{i} = "stablehlo.while"(%a{i}, %b{i}) ({{
      ^bb0(%c{j}: tensor<f32>, %d{j}: tensor<f32>):
        stablehlo.return %p : tensor<i1>
      }}, {{
      ^bb0(%a{j}: tensor<f32>, %b{j}: tensor<f32>):
        {deep(depth, j)}
        stablehlo.return %s{j}, %t{j} : tensor<f32>, tensor<f32>
      }}) : (tensor<f32>, tensor<f32>) -> (tensor<f32>, tensor<f32>)"""


def calls_to_sweep(depth: int) -> int:
    """Return how many Python calls it takes to erase the dead carry of nested loops."""
    module = ir.Module.parse(
        f"""
        func.func @main(%a0: tensor<f32>, %b0: tensor<f32>, %p: tensor<i1>) -> tensor<f32> {{
          {deep(depth)}
          return %s0 : tensor<f32>
        }}
        """,
        _jax.context(),
    )
    table, events = functions(module), list[str]()
    with _jax.working_in(module):
        sys.setprofile(lambda frame, event, value: events.append(event))
        erase_dead_ops(table["main"].regions[0].blocks[0], table)
        sys.setprofile(None)
    assert "cosine" not in str(module)
    return events.count("call")


def test_a_loop_is_analyzed_with_those_around_it_and_not_again():
    assert calls_to_sweep(24) < 5 * calls_to_sweep(6)


SHARDED = """
sdy.mesh @mesh = <["a"=2]>
func.func @main(%x: tensor<4xf32>, %n: tensor<i32>) -> tensor<4xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %r:2 = "stablehlo.while"(%zero, %x) ({
  ^bb0(%i: tensor<i32>, %a: tensor<4xf32>):
    %p = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  }, {
  ^bb0(%i: tensor<i32>, %a: tensor<4xf32>):
    %one = stablehlo.constant dense<1> : tensor<i32>
    %j = stablehlo.add %i, %one : tensor<i32>
    %s = stablehlo.sine %a : tensor<4xf32>
    stablehlo.return %j, %s : tensor<i32>, tensor<4xf32>
  }) {sdy.sharding = #sdy.sharding_per_value<[<@mesh, []>, <@mesh, [{"a"}]>]>}
    : (tensor<i32>, tensor<4xf32>) -> (tensor<i32>, tensor<4xf32>)
  return %r#1 : tensor<4xf32>
}
"""


def test_other_results_are_not_sharded_as_those_were():
    """What is said of each result in its place would not verify."""
    assert "sharding_per_value" in swept(SHARDED)[1]
    assert "sharding_per_value" not in swept(SHARDED.replace("%i, %n", "%n, %n"))[1]
    for pipeline in ("jvp", "vjp", "vjp{split=true}", "jvp,vjp"):
        module = ir.Module.parse(SHARDED, _jax.context())
        run_pipeline(module, f"builtin.module({pipeline})")
        assert module.operation.verify()


ON_HOST = """
func.func @main(%x: tensor<4xf32>, %n: tensor<i32>) -> tensor<4xf32> {
  %r = "stablehlo.case"(%n) ({
    %s = stablehlo.sine %x : tensor<4xf32>
    stablehlo.return %s : tensor<4xf32>
  }, {
    stablehlo.return %x : tensor<4xf32>
  }) {mhlo.frontend_attributes = {_xla_compute_type = "host"}} : (tensor<i32>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}
"""


def test_what_is_said_of_a_branch_stays_on_it():
    for pipeline in ("jvp", "vjp", "jvp,vjp", "vmap{size=2 in-axes=0,none}"):
        module = ir.Module.parse(ON_HOST, _jax.context())
        run_pipeline(module, f"builtin.module({pipeline})")
        assert "_xla_compute_type" in str(module)


def test_a_carry_that_the_condition_reads_stays():
    text = swept(LOOP.replace("return %r#1", "return %r#1"))[1]
    assert "compare" in text
    kept = swept(LOOP.replace("return %r#1", "return %r#2"))[1]
    assert "cosine" in kept
    assert kept.count("stablehlo.multiply") == 2


def test_branch_results_that_nobody_reads_go():
    _, text = swept(BRANCH)
    assert "sine" in text  # the word is in cosine
    assert "stablehlo.sine" not in text
    assert "stablehlo.cosine" in text
