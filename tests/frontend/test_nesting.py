"""Programs that are nested too deep: an error says so, and where; no process ends."""

from __future__ import annotations

import functools
import gc
import re
import sys
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import pullback as pb
import pullback_runtime as runtime
from pullback import _jax
from pullback._jax import ir
from pullback.errors import NestingError
from pullback.passes.base import Pass
from pullback.passes.manager import run_pipeline
from pullback_runtime.ir._nesting import MOST, nesting
from tests.rounding import FUNCTION, close

TENSOR = "tensor<f32>"


@pytest.fixture(autouse=True)
def no_collection_at_the_limit():
    """Where the stack is full, what else a collection finalizes would fail, and pytest with it."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def branches(count, outside=f"func.func public @main(%x: {TENSOR}) -> {TENSOR}"):
    """Each in the first branch of another one."""
    text = f"{outside} {{\n%c = stablehlo.constant dense<true> : tensor<i1>\n"
    for i in range(count):
        text += f'%v{i} = "stablehlo.if"(%c) ({{\n'
    text += f"%v{count} = stablehlo.sine %x : {TENSOR}\n"
    for i in range(count, 0, -1):
        text += (
            f"stablehlo.return %v{i} : {TENSOR}\n}}, {{ stablehlo.return %x : {TENSOR} }}) "
            f": (tensor<i1>) -> {TENSOR}\n"
        )
    return text + f"return %v0 : {TENSOR}\n}}\n"


def loops(count):
    text = f"func.func public @main(%a0: {TENSOR}) -> {TENSOR} {{\n"
    for i in range(count):
        text += (
            f'%v{i} = "stablehlo.while"(%a{i}) ({{\n^bb0(%b: {TENSOR}):\n'
            "%f = stablehlo.constant dense<false> : tensor<i1>\n"
            f"stablehlo.return %f : tensor<i1>\n}}, {{\n^bb0(%a{i + 1}: {TENSOR}):\n"
        )
    text += f"%v{count} = stablehlo.add %a{count}, %a{count} : {TENSOR}\n"
    for i in range(count, 0, -1):
        text += f"stablehlo.return %v{i} : {TENSOR}\n}}) : ({TENSOR}) -> {TENSOR}\n"
    return text + f"return %v0 : {TENSOR}\n}}\n"


def calls(count, last=f"%0 = stablehlo.sine %x : {TENSOR}"):
    functions = []
    for i in range(count + 1):
        name = "public @main" if i == 0 else f"private @f{i}"
        body = f"%0 = call @f{i + 1}(%x) : ({TENSOR}) -> {TENSOR}" if i < count else last
        functions.append(
            f"func.func {name}(%x: {TENSOR}) -> {TENSOR} {{\n{body}\nreturn %0 : {TENSOR}\n}}\n"
        )
    return "".join(functions)


def branches_of_functions(count):
    """Half of the depth is of calls, half of branches in the last function."""
    half = count // 2
    last = branches(half, f"func.func private @f{half}(%x: {TENSOR}) -> {TENSOR}")
    return calls(half - 1, f"%0 = call @f{half}(%x) : ({TENSOR}) -> {TENSOR}") + last


KINDS = [branches, loops, calls, branches_of_functions]


def parse(text):
    return ir.Module.parse(text, _jax.context())


@pytest.mark.parametrize("kind", KINDS)
def test_how_deep_a_module_is(kind):
    assert nesting(parse(kind(6)))[0] == 6
    assert nesting(parse(kind(800)))[0] == 800


def test_a_call_in_a_cycle_ends():
    text = calls(2).replace("stablehlo.sine %x :", f"call @f1(%x) : ({TENSOR}) ->")
    assert nesting(parse(text))[0] > 0


WAYS = {
    "load": lambda text, path: pb.load(path),
    "the runtime's load": lambda text, path: runtime.load(path),
    "compile": lambda text, path: runtime.compile(text),
    "a call": lambda text, path: runtime.make_handle(text),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_module_that_xla_would_not_survive_is_refused(kind, way, tmp_path):
    """The process ended with a segmentation fault."""
    path, text = tmp_path / "deep.mlir", kind(400)
    path.write_text(text)
    with pytest.raises((pb.ArtifactError, runtime.ArtifactError, runtime.ModuleError)) as caught:
        way(text, path)
    assert caught.value.message == (
        "the module is nested 400 deep: loops, branches and calls inside of each other; "
        f"up to {MOST} are supported"
    )
    assert re.search(r":\d+:\d+$", caught.value.where)
    assert caught.value.do == "write it as a loop: stablehlo.while"


@pytest.mark.parametrize("kind", [branches, calls])
def test_a_module_as_deep_as_may_be_runs(kind):
    (result,) = runtime.compile(kind(MOST))(jnp.float32(0.5))
    close(result, jnp.sin(jnp.float32(0.5)), ops=FUNCTION)


PASSES = [
    "jvp{entry=main}",
    "vjp{entry=main}",
    "vjp{entry=main split=true}",
    "linearize{entry=main}",
    "transpose{entry=main}",
    "vmap{entry=main size=3}",
]


@pytest.mark.parametrize("verify_each", [False, True])
@pytest.mark.parametrize("stage", PASSES)
def test_a_pass_says_that_a_module_is_too_deep(stage, verify_each):
    """It was a RecursionError of Python's alone."""
    with pytest.raises(NestingError) as caught:
        run_pipeline(parse(calls(400)), stage, verify_each=verify_each)
    name = stage.partition("{")[0]
    assert caught.value.message == (
        f"the program is nested 400 deep, too deep for the pass `{name}`: loops, branches and "
        "calls inside of each other"
    )
    assert caught.value.where is not None
    assert caught.value.do == (
        "write it as a loop, or split it into programs of which one calls another; or call "
        f"sys.setrecursionlimit with more than {sys.getrecursionlimit()}"
    )
    assert isinstance(caught.value, RecursionError)


def test_what_is_called_is_too_deep_to_be_erased():
    unused = calls(2000).replace("return %0", "return %x", 1)
    with pytest.raises(NestingError, match=r"nested 2000 deep, too deep for the pass `erase-dead`"):
        run_pipeline(parse(unused), "erase-dead")


@dataclass(frozen=True)
class Endless(Pass):
    """Recurse in a walk, of which MLIR makes a RuntimeError with the text of the error."""

    name = "endless"

    def run(self, module, rules):
        def visit(operation):
            return visit(operation)

        module.operation.walk(visit)


def test_an_error_in_a_walk_says_it_too():
    with pytest.raises(NestingError, match=r"nested 30 deep, too deep for the pass `endless`"):
        run_pipeline(parse(calls(30)), [Endless()])
    with pytest.raises(RuntimeError, match=r"RecursionError: maximum recursion"):
        run_pipeline(parse(calls(2)), [Endless()])


def branched(f, i, x):
    return lax.cond(x > i, f, lambda y: y * 2, x)


def nested_branches(count):
    f = jnp.sin
    for i in range(count):
        f = functools.partial(branched, f, i)
    return f


@pytest.fixture
def low_limit():
    """A limit that our recursion meets, as JAX has traced the function with a higher one."""
    before = sys.getrecursionlimit()
    yield
    sys.setrecursionlimit(before)


def test_a_function_that_jax_can_trace_may_be_too_deep_for_a_program(low_limit):
    f = nested_branches(90)
    sys.setrecursionlimit(5000)
    jax.jit(f).trace(1.0)  # JAX keeps the trace
    with pytest.raises(NestingError) as caught:
        traced_with_less(f)
    assert caught.value.message.startswith(
        "the program is nested 90 deep, too deep for pullback.trace: "
    )
    assert "test_nesting.py" in caught.value.where


def traced_with_less(f):
    traceable = jax.jit(f)
    traceable.trace(1.0)
    sys.setrecursionlimit(450)
    return pb.trace(f)(1.0)


def test_an_endless_recursion_of_the_user_s_stays_what_it_is():
    def f(x):
        return f(x)

    with pytest.raises(RecursionError) as caught:
        pb.trace(f)(1.0)
    assert not isinstance(caught.value, NestingError)


def test_an_endless_rule_stays_what_it_is():
    f = jax.custom_jvp(lambda x: 2 * x)

    def rule(primals, tangents):
        return rule(primals, tangents)

    f.defjvp(rule)
    with pytest.raises(RecursionError) as caught:
        pb.grad(f)(1.0)
    assert not isinstance(caught.value, NestingError)
