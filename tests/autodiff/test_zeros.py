"""What is known to be zero, by the constants of a module."""

import pytest

from pullback import _jax
from pullback._jax import ir
from pullback.autodiff import registry, zeros
from pullback.ir.symbols import symbol
from tests.work import lines_run

registry.load_all()
CONSTANTS = {
    "dense<0.0> : tensor<2xf64>": True,
    "dense<-0.0> : tensor<2xf64>": True,
    "dense<[0.0, 1.0]> : tensor<2xf64>": False,
    "dense<(0.0, 0.0)> : tensor<2xcomplex<f64>>": True,
    "dense<(0.0, -0.0)> : tensor<2xcomplex<f32>>": True,
    "dense<(0.0, 1.0)> : tensor<2xcomplex<f64>>": False,
    "dense<[(0.0, 0.0), (1.0, 0.0)]> : tensor<2xcomplex<f64>>": False,
}
NOT_NUMBERS = {
    "dense<0x7FC00000> : tensor<2xf32>": True,
    "dense<(0x7FF8000000000000, 0.0)> : tensor<2xcomplex<f64>>": True,
    "dense<1.0> : tensor<2xf32>": False,
}


def constant(text):
    """The value of a constant, and the module that it is in."""
    with _jax.context():
        module = ir.Module.parse(
            f"func.func @main() {{\n%0 = stablehlo.constant {text}\nreturn\n}}"
        )
    block = module.body.operations[0].regions[0].blocks[0]
    return block.operations[0].result, module


@pytest.mark.parametrize(("text", "expected"), CONSTANTS.items())
def test_a_constant_is_zero(text, expected):
    value, _module = constant(text)
    assert zeros.is_zero_constant(value) is expected


@pytest.mark.parametrize(("text", "expected"), NOT_NUMBERS.items())
def test_a_constant_is_nan(text, expected):
    value, _module = constant(text)
    assert zeros.is_nan(value, {}) is expected


@pytest.mark.parametrize(("number", "expected"), [("0x7FF8000000000000", True), ("0.0", False)])
def test_a_value_is_nan_behind_calls(number, expected):
    """Also of a composite, whose view has another name than the op."""
    module = ir.Module.parse(
        f"""
        func.func @main() -> tensor<3xf64> {{
          %0 = stablehlo.constant dense<{number}> : tensor<2xf64>
          %1 = stablehlo.composite "acme.same" %0 {{decomposition = @same}}
            : (tensor<2xf64>) -> tensor<2xf64>
          %2 = call @longer(%1) : (tensor<2xf64>) -> tensor<3xf64>
          return %2 : tensor<3xf64>
        }}
        func.func private @same(%x: tensor<2xf64>) -> tensor<2xf64> {{
          return %x : tensor<2xf64>
        }}
        func.func private @longer(%x: tensor<2xf64>) -> tensor<3xf64> {{
          %0 = stablehlo.constant dense<0x7FF8000000000000> : tensor<1xf64>
          %1 = stablehlo.concatenate %x, %0, dim = 0
            : (tensor<2xf64>, tensor<1xf64>) -> tensor<3xf64>
          return %1 : tensor<3xf64>
        }}
        """,
        _jax.context(),
    )
    functions = {symbol(each.operation): each for each in module.body.operations}
    main = functions["main"].regions[0].blocks[0]
    assert zeros.is_nan(list(main.operations)[-2].result, functions) is expected


def test_what_is_sorted_along_is_zero_where_it_was():
    module = ir.Module.parse(
        """
        func.func @main(%x: tensor<3xf64>) -> (tensor<3xf64>, tensor<3xf64>) {
          %zero = stablehlo.constant dense<0.0> : tensor<3xf64>
          %0:2 = "stablehlo.sort"(%x, %zero) ({
          ^bb0(%a: tensor<f64>, %b: tensor<f64>, %c: tensor<f64>, %d: tensor<f64>):
            %1 = stablehlo.compare LT, %a, %b : (tensor<f64>, tensor<f64>) -> tensor<i1>
            stablehlo.return %1 : tensor<i1>
          }) : (tensor<3xf64>, tensor<3xf64>) -> (tensor<3xf64>, tensor<3xf64>)
          return %0#0, %0#1 : tensor<3xf64>, tensor<3xf64>
        }
        """,
        _jax.context(),
    )
    end = list(module.body.operations[0].regions[0].blocks[0].operations)[-1]
    assert [zeros.is_zero(v) for v in end.operands] == [False, True]
    assert [zeros.stays_zero(v, {}) for v in end.operands] == [False, True]


DYNAMIC = {
    "dynamic_broadcast_in_dim %zero, %two, dims = []": "f64>, tensor<1xi64>",
    "dynamic_reshape %zeros, %two": "2xf64>, tensor<1xi64>",
    "dynamic_pad %zeros, %zero, %none, %none, %none": (
        "2xf64>, tensor<f64>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>"
    ),
    "real_dynamic_slice %zeros, %none, %two, %one": (
        "2xf64>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>"
    ),
}


@pytest.mark.parametrize(("op", "types"), DYNAMIC.items())
def test_zeros_whose_shape_is_an_operand_are_zeros(op, types):
    module = ir.Module.parse(
        f"""
        func.func @main() -> tensor<2xf64> {{
          %zero = stablehlo.constant dense<0.0> : tensor<f64>
          %zeros = stablehlo.constant dense<0.0> : tensor<2xf64>
          %none = stablehlo.constant dense<0> : tensor<1xi64>
          %one = stablehlo.constant dense<1> : tensor<1xi64>
          %two = stablehlo.constant dense<2> : tensor<1xi64>
          %0 = stablehlo.{op} : (tensor<{types}) -> tensor<2xf64>
          return %0 : tensor<2xf64>
        }}
        """,
        _jax.context(),
    )
    end = list(module.body.operations[0].regions[0].blocks[0].operations)[-1]
    assert zeros.is_zero(end.operands[0])


@pytest.mark.parametrize("start", [0.0, 1.0])
def test_what_all_devices_have_is_zero_where_each_has_zeros(start):
    module = ir.Module.parse(
        f"""
        sdy.mesh @mesh = <["i"=2]>
        func.func @main() -> tensor<2xf64> {{
          %zero = stablehlo.constant dense<{start}> : tensor<2xf64>
          %0 = sdy.manual_computation(%zero) in_shardings=[<@mesh, [{{}}]>]
              out_shardings=[<@mesh, [{{}}]>] manual_axes={{"i"}} (%x: tensor<2xf64>) {{
            %1 = "stablehlo.all_reduce"(%x) <{{
              replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>
            }}> ({{
            ^bb0(%a: tensor<f64>, %b: tensor<f64>):
              %2 = stablehlo.add %a, %b : tensor<f64>
              stablehlo.return %2 : tensor<f64>
            }}) : (tensor<2xf64>) -> tensor<2xf64>
            sdy.return %1 : tensor<2xf64>
          }} : (tensor<2xf64>) -> tensor<2xf64>
          return %0 : tensor<2xf64>
        }}
        """,
        _jax.context(),
    )
    end = list(module.body.operations[1].regions[0].blocks[0].operations)[-1]
    assert zeros.is_zero(end.operands[0]) is (start == 0)
    assert zeros.stays_zero(end.operands[0], {}) is (start == 0)


def test_only_those_operands_of_a_call_are_looked_at_that_a_result_depends_on():
    """A rule for a tree of thousands of parameters is called with each, and has as many results."""
    count = 30
    tensor = "tensor<2xf64>"
    types = ", ".join([tensor] * count)
    arguments = ", ".join(f"%x{i}: {tensor}" for i in range(count))
    names = ", ".join(f"%x{i}" for i in range(count))
    module = ir.Module.parse(
        f"""
        func.func @main({arguments}) -> ({types}) {{
          %0 = stablehlo.constant dense<0.0> : {tensor}
          %1:{count} = call @same(%0, {names.partition(", ")[2]}) : ({types}) -> ({types})
          return {", ".join(f"%1#{i}" for i in range(count))} : {types}
        }}
        func.func private @same({arguments}) -> ({types}) {{
          return {names} : {types}
        }}
        """,
        _jax.context(),
    )
    functions = {symbol(each): each for each in module.body.operations}
    results = functions["main"].regions[0].blocks[0].operations[2].operands

    def search():
        assert [zeros.is_zero(v, functions) for v in results] == [True, *[False] * (count - 1)]
        assert not any(zeros.stays_zero(v, functions) for v in results[1:])

    assert lines_run(search) < 300 * count


OF_ZERO = {
    "stablehlo.add %z, %z": True,
    "stablehlo.add %z, %x": False,
    "stablehlo.subtract %x, %z": False,
    "stablehlo.multiply %x, %z": True,
    "stablehlo.multiply %x, %x": False,
    "stablehlo.divide %z, %x": True,
    "stablehlo.divide %x, %z": False,
    "stablehlo.power %z, %x": False,
    "stablehlo.cosine %z": False,
    "stablehlo.negate %z": True,
    "stablehlo.select %p, %z, %z : tensor<2xi1>,": True,
    "stablehlo.select %p, %z, %x : tensor<2xi1>,": False,
    "stablehlo.reverse %z, dims = [0]": True,
    "stablehlo.floor %z": False,
    '"acme.unknown"(%z)': False,
}


@pytest.mark.parametrize(("text", "expected"), OF_ZERO.items())
def test_an_op_is_zero_where_it_is_linear_in_zeros(text, expected):
    kind = "tensor<2xf64>"
    signature = f"({kind}) -> {kind}" if text.endswith(")") else kind
    colon = "" if text.endswith(",") else ":"
    with _jax.context() as context:
        allowed, context.allow_unregistered_dialects = context.allow_unregistered_dialects, True
        module = ir.Module.parse(
            f"""func.func @main(%x: {kind}, %p: tensor<2xi1>) -> {kind} {{
              %z = stablehlo.constant dense<0.0> : {kind}
              %y = {text} {colon} {signature}
              return %y : {kind}
            }}"""
        )
        context.allow_unregistered_dialects = allowed
    block = module.body.operations[0].regions[0].blocks[0]
    assert zeros.is_zero(block.operations[1].result) is expected
