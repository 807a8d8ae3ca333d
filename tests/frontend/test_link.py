"""Functions are copied into another module, and shared where an equal one is there."""

from __future__ import annotations

import pytest

from pullback import _jax
from pullback._jax import ir
from pullback.errors import PullbackError
from pullback.frontend import link
from pullback.ir import symbols
from pullback.ir.symbols import Symbols
from tests.work import lines_run


def module(text: str) -> ir.Module:
    return ir.Module.parse(text, _jax.context())


def function(name: str, op: str, visibility: str = "private") -> str:
    return f"""func.func {visibility} @{name}(%x: tensor<f32>) -> tensor<f32> {{
      %0 = stablehlo.{op} %x : tensor<f32>
      return %0 : tensor<f32>
    }}"""


def caller(name: str, callee: str) -> str:
    return f"""func.func private @{name}(%x: tensor<f32>) -> tensor<f32> {{
      %0 = call @{callee}(%x) : (tensor<f32>) -> tensor<f32>
      return %0 : tensor<f32>
    }}"""


def names(linked: ir.Module) -> list[str]:
    return [op.name.value for op in linked.body.operations]


def test_an_equal_function_of_another_number_is_shared():
    target = module(function("f", "sine") + function("f_1", "cosine"))
    assert link.merge(target, module(function("f", "cosine")), "f") == "f_1"
    assert names(target) == ["f", "f_1"]


def test_a_function_that_does_something_else_is_renamed_with_those_who_call_it():
    target = module(function("f", "sine"))
    source = module(function("f", "cosine") + caller("g", "f"))
    assert link.merge(target, source, "g") == "g"
    assert names(target) == ["f", "f_0", "g"]
    assert target.operation.verify()
    assert "call @f_0" in str(target)
    assert link.merge(target, source, "g") == "g"
    assert names(target) == ["f", "f_0", "g"]


def test_an_entry_is_never_shared():
    """It is differentiated in place, and what a rule calls must stay what it was."""
    target = module(function("main", "sine", "public"))
    assert link.merge(target, module(function("main", "sine")), "main") == "main_0"


def test_functions_that_a_custom_call_names_in_an_array_come_along():
    """XLA ends the process where the comparator of `ApproxTopK` is not there."""
    calls = """func.func private @g(%x: tensor<f32>) -> tensor<f32> {
      %0 = stablehlo.custom_call @Target(%x) {called_computations = [@f]}
        : (tensor<f32>) -> tensor<f32>
      return %0 : tensor<f32>
    }"""
    target = module(function("f", "sine"))
    link.merge(target, module(function("f", "cosine") + calls), "g")
    assert names(target) == ["f", "f_0", "g"]
    assert "called_computations = [@f_0]" in str(target)


def test_meshes_of_one_name_must_be_equal():
    def sharded(size: int) -> ir.Module:
        return module(f'sdy.mesh @mesh = <["x"={size}]>\n' + function("f", "sine"))

    target = sharded(2)
    assert link.merge(target, sharded(2), "f") == "f"
    with pytest.raises(PullbackError, match="use different meshes under the name `mesh`"):
        link.merge(target, sharded(4), "f")


def test_symbols_are_found_again_as_functions_come_and_go():
    target = Symbols(module(function("f", "sine") + function("f_1", "cosine")))
    source = link.LinkSource(link.Library(module(function("f", "cosine"))), "f")
    assert link.merge_source(target, source) == "f_1"
    target.remove("f_1").erase()
    assert link.merge_source(target, source) == "f_0"
    assert link.merge_source(target, source) == "f_0"
    assert [target.unique(name) for name in ("f", "g")] == ["f_1", "g"]
    assert names(target.module) == ["f", "f_0"]


def test_what_a_pass_changes_is_never_shared():
    target = Symbols(module(""))
    again = link.LinkSource(link.Library(module(function("f", "sine"))), "f")
    made = again.library.functions["f"].operation
    with _jax.context(), ir.Location.unknown(_jax.context()):
        target.add("f", made.clone(ir.InsertionPoint(target.module.body)).operation)
    assert link.merge_source(target, again) == "f_0"


def test_each_of_many_rules_is_read_once():
    """A program of n rules under one name is linked in n steps, not in n times n."""

    def linked(count):
        target, sources = Symbols(module("")), []
        for i in range(count):
            text = f"""func.func private @f(%x: tensor<f32>) -> tensor<f32> {{
              %c = stablehlo.constant dense<{i}.0> : tensor<f32>
              return %c : tensor<f32>
            }}"""
            sources.append(link.LinkSource(link.Library(module(text)), "f"))
        work = lines_run(lambda: [link.merge_source(target, source) for source in sources])
        assert len(names(target.module)) == count
        return work

    assert linked(40) < 2.2 * linked(20)


def test_a_copy_that_is_not_complete_is_not_taken_for_another_function():
    """@f, which refers to itself by way of @g, is copied before it is known what @g is called."""
    target = Symbols(module(function("g", "cosine") + caller("h", "g")))
    calls = caller("f", "g") + caller("g", "f_1") + caller("f_1", "f")
    assert link.merge_source(target, link.LinkSource(link.Library(module(calls)), "f")) == "f"
    other = link.Library(module(function("g", "cosine") + caller("f", "g")))
    assert link.merge_source(target, link.LinkSource(other, "f")) == "f_0"
    assert target.module.operation.verify()
    callees = [
        name
        for f in target.functions.values()
        for name in link.references(f)
        if symbols.symbol(f) == "f_0"
    ]
    assert callees == ["g"]


def test_a_library_finds_what_was_added_before_and_after():
    """A mesh is put before all functions, whose order says nothing."""
    library = link.Library(module(""))
    for text, begins in (("a", False), ("b", False), ("c", True), ("mesh", True), ("d", False)):
        body = library.module.body
        place = ir.InsertionPoint.at_block_begin(body) if begins else ir.InsertionPoint(body)
        mesh = 'sdy.mesh @mesh = <["x"=2]>'
        added = module(mesh if text == "mesh" else function(text, "sine")).body.operations[0]
        added.operation.clone(ip=place)
        library.refresh()
        assert text in library.functions
        assert library.functions[text].operation.attributes["sym_name"].value == text
    assert {*library.functions} == {"a", "b", "c", "d", "mesh"}
    assert [*library.meshes] == ["mesh"]
