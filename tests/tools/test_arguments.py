"""The grammar of `--args`."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from pullback.errors import UsageError
from pullback.tools.arguments import parse_arguments, random_array

pytestmark = pytest.mark.whole

KEY = jax.eval_shape(lambda: jax.random.key(0))
RBG = jax.random.key(0, impl="rbg")


def shaped(shape: tuple[int, ...], dtype: str) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("f32[8,128], i32[8]", (shaped((8, 128), "float32"), shaped((8,), "int32"))),
        (
            "bf16[], bool, pred[2]",
            (shaped((), "bfloat16"), shaped((), "bool"), shaped((2,), "bool")),
        ),
        ("float32[3]", (shaped((3,), "float32"),)),
        ("c64[0]", (shaped((0,), "complex64"),)),
        ("key, key<rbg>[2]", (KEY, jax.eval_shape(lambda: jax.random.split(RBG, 2)))),
        ("{key: f32[]}", ({"key": shaped((), "float32")},)),
        ("", ()),
        ("3, -1.5e-3, True", (3, -0.0015, True)),
        ("(f32[2], [i8[1]]),", ((shaped((2,), "float32"), [shaped((1,), "int8")]),)),
        (
            "{w: f32[4], deep: {b: f32[]}}, ()",
            ({"w": shaped((4,), "float32"), "deep": {"b": shaped((), "float32")}}, ()),
        ),
    ],
)
def test_reads(text, expected):
    assert parse_arguments(text) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("f33[8]", "no dtype 'f33'; there are f16, f32"),
        ("key<fish>", "no dtype 'key<fish>'; there are f16, f32"),
        ("key<fry", "unexpected character '<'"),
        ("f32[8", "expected ',', found 'the end'"),
        ("f32[-1]", "expected a dimension, found '-1'"),
        ("f32[2.5]", "expected a dimension, found '2.5'"),
        ("f32[8] i32", "expected ',', found 'i32'"),
        ("f32; i32", "unexpected character ';'"),
        ("{3: f32}", "expected a name, found '3'"),
        ("{w f32}", "expected ':', found 'f32'"),
        (", f32", "expected an argument, found ','"),
        ("(f32", "expected ',', found 'the end'"),
        ("f64[2]", "f64 needs 64-bit types: set JAX_ENABLE_X64=1"),
    ],
)
def test_refuses_with_the_place(text, words):
    with pytest.raises(UsageError) as caught:
        parse_arguments(text)
    assert words in caught.value.message
    assert text in caught.value.message


def test_the_caret_points_at_the_mistake():
    with pytest.raises(UsageError) as caught:
        parse_arguments("f32[2], f33[8]")
    _, text, caret = caught.value.message.splitlines()
    assert text[caret.index("^") :] == "f33[8]"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32", "uint8", "bool", "complex64"])
def test_random_arrays_have_the_type_and_repeat(dtype):
    first = random_array(np.random.default_rng(0), (64, 2), dtype)
    again = random_array(np.random.default_rng(0), (64, 2), dtype)
    assert (first.shape, str(first.dtype)) == ((64, 2), dtype)
    assert np.array_equal(first, again)
    assert len(np.unique(first)) > 1
