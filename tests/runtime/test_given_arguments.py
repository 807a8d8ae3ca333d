"""Lists of numbers and arrays of 64 bits as arguments: in memory, of files, and without JAX."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback_runtime as runtime
from tests.rounding import close
from tests.runtime.test_portable import portable, words

pb = pytest.importorskip("pullback")

WAYS = {
    "in memory": lambda program: program,
    "loaded": lambda program: pb.load(pb.artifact.serialize(program)),
    "by the runtime": lambda program: runtime.load(pb.artifact.serialize(program)),
    "without JAX": lambda program: portable(pb.artifact.serialize(program)),
}


@pytest.fixture(params=WAYS)
def way(request):
    return WAYS[request.param]


def scaled(params, counts):
    return params["w"] * jnp.sum(counts)


@pytest.mark.parametrize("numbers", [[0.1, 2.0], [1, 2], (0.1, 2), [np.float64(0.1), 2.0]])
def test_lists_of_numbers_are_arrays(way, numbers):
    program = way(pb.trace(scaled)({"w": jnp.ones(2)}, jnp.ones(3, jnp.int32)))
    found = program({"w": numbers}, counts=[1, 2, 3])
    assert found.dtype == np.float32
    close(found, np.asarray(numbers, np.float32) * 6, ops=4)


def test_lists_of_lists_are_arrays_of_the_type_that_the_program_takes(way):
    matrix = [[1, 2.5], [3, 4]]
    program = way(pb.trace(lambda x: x * 2)(jnp.ones((2, 2), jnp.bfloat16)))
    assert np.array_equal(np.asarray(program(matrix), np.float32), np.asarray(matrix) * 2)
    program = way(pb.trace(lambda x: x + 1j)(jnp.ones((2, 2), jnp.complex64)))
    assert np.array_equal(program(matrix), np.asarray(matrix) + 1j)


def test_lists_of_numbers_are_differentiated_as_arrays():
    gradient = pb.trace(lambda x: jnp.sum(x**3))(jnp.ones(2)).grad()
    close(gradient([1, 2]), np.float32([3, 12]), ops=4)


def test_arrays_of_64_bits_are_narrowed(way):
    program = way(pb.trace(scaled)({"w": jnp.ones(2)}, jnp.ones(3, jnp.int32)))
    found = program({"w": np.array([0.1, 2.0])}, np.array([1, 2, 3], np.int64))
    close(found, np.float32([0.6, 12.0]), ops=4)


@pytest.mark.parametrize(
    ("value", "got", "do"),
    [
        (np.ones((2, 2)), "float64[2,2] of NumPy", "x.astype('int32')"),
        (np.ones((2, 2), np.float32), "float32[2,2] of NumPy", "x.astype('int32')"),
        ([[1.0, 2.0], [3, 4]], "float[2,2] in a list", "numpy.asarray(x, 'int32')"),
        ([[True, False]] * 2, "bool[2,2] in a list", "numpy.asarray(x, 'int32')"),
    ],
)
def test_an_error_names_the_type_that_was_given(way, value, got, do):
    """JAX had narrowed float64, and the error said float32."""
    program = way(pb.trace(lambda x: x * 2)(jnp.ones((2, 2), jnp.int32)))
    assert words(program, value) == (
        f"argument 0 (x) has the wrong dtype: expected int32[2,2], got {got}\n"
        "  where: in a call of @main\n"
        f"  do:    convert it: {do}"
    )


def test_an_error_names_the_shape_and_the_type_that_were_given(way):
    program = way(pb.trace(lambda x: x * 2)(jnp.ones(3)))
    expected = "argument 0 (x) has the wrong shape: expected float32[3], got "
    assert expected + "float64[2] of NumPy" in words(program, np.ones(2))
    assert expected + "int[2,1] in a tuple" in words(program, ([1], [2]))
    assert expected + "a Python float" in words(program, 1.0)


def test_integers_of_numpy_are_not_taken_for_floats(way):
    program = way(pb.trace(lambda x: x * 2)(jnp.ones(3)))
    assert "expected float32[3], got int64[3] of NumPy" in words(program, np.ones(3, np.int64))


def test_lists_of_other_lengths_are_no_array(way):
    program = way(pb.trace(lambda x: x * 2)(jnp.ones((2, 2))))
    assert words(program, [[1.0, 2.0], [3.0]]) == (
        "argument 0 (x) is no array: expected float32[2,2], got list\n"
        "  where: in a call of @main\n"
        "  do:    make an array of it first"
    )


def test_a_list_of_arrays_is_another_structure():
    program = pb.trace(lambda x: x * 2)(jnp.ones((2, 2)))
    with pytest.raises(pb.errors.PullbackError, match="do not have the structure"):
        program([jnp.ones(2), jnp.ones(2)])
    with pytest.raises(pb.errors.PullbackError, match="do not have the structure"):
        jax.jit(lambda x: program([x, x]))(jnp.ones(2))


@pytest.mark.parametrize("way", [each for each in WAYS if each != "without JAX"], indirect=True)
def test_lists_for_symbolic_dimensions(way):
    (rows,) = jax.export.symbolic_shape("rows")
    types = jax.ShapeDtypeStruct((rows, 2), "float32"), jax.ShapeDtypeStruct((), "int32")
    program = way(pb.trace(lambda x, count: x * count)(*types))
    close(program([[1.0, 2.0]] * 3, 2), np.float32([[2.0, 4.0]] * 3), ops=4)
    with pytest.raises(runtime.DimensionError, match=r"int32\[\], got float64\[\] of NumPy"):
        program(np.ones((3, 2)), np.float64(2))
