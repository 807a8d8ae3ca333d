"""Slopes by differences: as exact as their error says."""

from __future__ import annotations

import numpy as np
import pytest

from pullback.testing.slopes import along

X = np.linspace(-3.0, 3.0, 2001) + 1e-3
EPSILON = float(np.finfo(np.float64).eps)

SMOOTH = {
    "sine": (np.sin, np.cos),
    "exponential": (np.exp, np.exp),
    "square": (np.square, lambda x: 2 * x),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-9 * x)), lambda x: 2.25 / np.cosh(4.5 * x) ** 2),
}

OTHERS = {
    **SMOOTH,
    "steps": (lambda x: np.floor(10 * x), lambda x: 0 * x),
    "small steps": (lambda x: np.floor(1e3 * x) / 1e3, lambda x: 0 * x),
    "absolute value": (np.abs, np.sign),
    "waves": (lambda x: np.sin(50 * x), lambda x: 50 * np.cos(50 * x)),
}


def slope(function, x=X):
    (found,) = along(lambda distance: [function(x + distance)], EPSILON, 8, 3.0)
    return found


@pytest.mark.parametrize("name", SMOOTH)
def test_smooth_functions_have_slopes_of_many_digits(name):
    function, derivative = SMOOTH[name]
    found = slope(function)
    assert np.max(found.error) < 1e-6
    np.testing.assert_allclose(found.value, derivative(X), atol=1e-7)
    assert not np.any(found.bends)


@pytest.mark.parametrize("name", OTHERS)
def test_the_error_bounds_what_is_wrong(name):
    function, derivative = OTHERS[name]
    found = slope(function)
    wrong = np.abs(found.value - derivative(X)) > 2 * found.error
    assert np.mean(wrong) < 1e-2


def test_a_kink_has_two_slopes():
    found = slope(np.abs, np.zeros(1))
    assert found.bends
    np.testing.assert_allclose([found.low[0], found.high[0]], [-1, 1], atol=1e-6)


def test_where_there_is_no_value_there_is_no_slope():
    with np.errstate(all="ignore"):
        found = slope(np.sqrt, np.array([-1.0, 0.0, 1.0]))
    assert list(np.isfinite(found.value)) == [False, False, True]
    assert list(np.isfinite(found.error)) == [False, False, True]


def test_slopes_to_neighbours_tell_of_waves_between_them():
    """Slopes over longer steps agree by accident, about zero."""
    wave, precision = 1e8, float(np.finfo(np.float32).eps)
    at = lambda x: lambda distance: [np.sin(wave * (x + distance)) / wave]  # noqa: E731
    points = np.linspace(90.0, 110.0, 501)
    (found,) = along(at(points), EPSILON, 8, 100.0, precision)
    assert np.mean(found.grain > 0.5 * np.abs(found.value)) > 0.99
    (found,) = along(at(points * 1e-9), EPSILON, 8, 1e-7, precision)  # a wave is 5 million of them
    assert np.max(found.grain) < 1e-5


def test_the_grain_is_how_far_the_slope_moves_to_a_neighbour():
    precision = float(np.finfo(np.float32).eps)
    (found,) = along(lambda d: [np.sin(X + d)], EPSILON, 8, 3.0, precision)
    moved = np.abs(np.sin(X)) * 3.0 * precision
    assert np.all(found.grain > 0.99 * moved - 1e-8)
    assert np.all(found.grain < 1.5 * moved + 1e-8)


def test_a_kink_has_no_grain():
    (found,) = along(lambda d: [np.abs(np.zeros(1) + d)], EPSILON, 8, 1.0, 1e-7)
    assert found.grain == 0
