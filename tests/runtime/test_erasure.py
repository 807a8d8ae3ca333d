"""Erasure: what is erased goes at once, handles to it stay valid, and what is used stays."""

from __future__ import annotations

import gc

import pytest

from pullback_runtime import ErasureError
from pullback_runtime._jax import fresh_context, ir
from pullback_runtime.ir._erasure import erase, erase_arguments, erasing, retire, spare

TEXT = """
func.func @main(%x: tensor<f32>, %y: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.sine %x : tensor<f32> loc("model.py":3:0)
  %1 = stablehlo.cosine %0 : tensor<f32>
  %2 = stablehlo.add %x, %x : tensor<f32>
  %i = stablehlo.constant dense<true> : tensor<i1>
  %3 = "stablehlo.if"(%i) ({
    stablehlo.return %2 : tensor<f32>
  }, {
    stablehlo.return %x : tensor<f32>
  }) : (tensor<i1>) -> tensor<f32>
  return %2 : tensor<f32>
}
"""


@pytest.fixture
def module():
    with fresh_context():
        return ir.Module.parse(TEXT)


def block_of(module):
    return module.body.operations[0].regions[0].blocks[0]


def op(module, name):
    found = (view.operation for view in block_of(module).operations)
    return next(each for each in found if each.name == f"stablehlo.{name}")


def add(module):
    """One more op, in front of the return."""
    block = block_of(module)
    x = block.arguments[0]
    place = ir.InsertionPoint.at_block_terminator(block)
    loc = ir.Location.unknown(module.context)
    return ir.Operation.create("stablehlo.add", [x.type], [x, x], loc=loc, ip=place)


def test_what_is_erased_is_gone_at_once(module):
    with erasing():
        erase(op(module, "cosine"))
        assert "cosine" not in str(module)
        assert not list(op(module, "sine").result.uses)
    assert module.operation.verify()


def test_outside_of_a_scope_it_is_freed_at_once(module):
    erase(op(module, "cosine"))
    assert "cosine" not in str(module)
    assert module.operation.verify()


def test_handles_stay_valid_and_no_value_gets_the_address_of_another(module):
    """A value that was made next had the address of the erased one, and was taken for it."""
    with erasing():
        cosine = op(module, "cosine")
        known = {cosine.result}
        erase(cosine)
        made = [add(module).result for _ in range(100)]
        assert not known.intersection(made)
        assert cosine.name == "stablehlo.cosine"
        for each in made:
            erase(each.owner)
            made = [add(module).result for _ in range(2)]
            assert not known.intersection(made)


def test_inner_scopes_end_with_the_outermost(module):
    with erasing():
        with erasing():
            cosine = op(module, "cosine")
            erase(cosine)
        add(module)
        assert cosine.name == "stablehlo.cosine"


def test_what_was_erased_uses_nothing_any_more(module):
    """Operands may be erased before it is freed; so may what its regions use."""
    with erasing():
        erase(op(module, "if"))
        retire(op(module, "cosine"))
        users = [[use.owner.name for use in op(module, n).result.uses] for n in ("add", "sine")]
        assert users == [["func.return"], []]
        erase(op(module, "sine"))
    assert module.operation.verify()


def test_what_is_used_is_not_erased(module):
    """What used it would be left with a pointer to freed memory."""
    with pytest.raises(ErasureError) as caught:
        erase(op(module, "sine"))
    assert str(caught.value).splitlines()[0] == (
        "a pass erases `stablehlo.sine`, and `stablehlo.cosine` uses what it gives"
    )
    assert caught.value.do == "report it, with what you derived: a pass, or a rule, is wrong"
    assert "sine" in str(module)


def test_a_use_that_comes_later_is_found_at_the_end(module):
    def change():
        with erasing():
            cosine = op(module, "cosine")
            retire(cosine)
            add(module).operands[1] = cosine.result

    with pytest.raises(ErasureError, match=r"`stablehlo\.cosine`, and `stablehlo\.add` uses"):
        change()
    assert "unrealized_conversion_cast" in str(module)
    assert module.operation.verify()


def test_an_error_in_a_half_done_module_is_shown_and_the_module_can_be_freed(module):
    """Uses that are to be replaced at the end of a sweep were left with pointers to nothing."""

    def change():
        for _ in range(100):
            made = add(module)
            made.operands[0] = op(module, "cosine").result
            result = made.result
            retire(made)
            add(module).operands[1] = result
        raise KeyError("no rule")

    with pytest.raises(KeyError, match="no rule"), erasing():
        change()
    assert module.operation.verify()
    gc.collect()


def test_arguments_are_erased_where_nothing_uses_them(module):
    block = block_of(module)
    with pytest.raises(ErasureError, match=r"`func\.func`, and `stablehlo\.\w+` uses"):
        erase_arguments(block, [0])
    erase_arguments(block, [1])
    assert len(block.arguments) == 1


def test_a_spare_operation_is_in_no_block_of_the_program(module):
    with erasing():
        before = str(module)
        aside = spare(op(module, "if"))
        assert str(module) == before
        assert len(list(op(module, "add").result.uses)) == 3
        erase(aside)
        assert len(list(op(module, "add").result.uses)) == 2
        spare(op(module, "if"))  # and one that is left, as an error leaves it
    assert module.operation.verify()


def test_modules_of_several_contexts(module):
    with fresh_context():
        other = ir.Module.parse(TEXT)
    with erasing():
        erase(op(module, "cosine"))
        erase(op(other, "cosine"))
        del other
        gc.collect()
    assert module.operation.verify()
