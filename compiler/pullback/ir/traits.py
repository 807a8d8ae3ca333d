"""Traits of ops: what holds of an op by its name alone, whatever its derivative is.

An op that is not in the table has no trait, which is always safe: it is stored and not recomputed,
and each element of its results may depend on each of its operands. Derivative rules say what holds
of derivatives (`autodiff/registry.py`).
"""

from __future__ import annotations

ELEMENTWISE: set[str] = set()
"""Each element of a result depends on the elements at its place, and on scalars."""

CHOOSES: set[str] = set()
"""No arithmetic on floats: they move, pick, convert or make numbers, or hold ops."""

MOVES: set[str] = set()
"""Each element of the result is an element of one of the operands in `DATA`."""

CHEAP: set[str] = set()
"""Recomputed in less time than it takes to store and load the result."""

VIEW: set[str] = set()
"""Cost nothing once their operands are there."""

OBSERVED: set[str] = set()
"""The host or the outside world can notice that they run.

A collective is not among them: all devices run the same program, so where its results are unused,
none of them takes part. JAX leaves it out as well.
"""

_TABLE: list[tuple[tuple[set[str], ...], str]] = [
    (
        (ELEMENTWISE, CHEAP),
        """
        stablehlo: abs add and atan2 cbrt ceil clamp compare cosine count_leading_zeros divide
        exponential exponential_minus_one floor is_finite log log_plus_one logistic maximum minimum
        multiply negate not or popcnt power remainder round_nearest_afz round_nearest_even rsqrt
        shift_left shift_right_arithmetic shift_right_logical sign sine sqrt subtract tan tanh xor
        chlo: square""",
    ),
    ((ELEMENTWISE, CHEAP, CHOOSES), "stablehlo: complex imag real"),
    ((ELEMENTWISE, CHEAP, MOVES, CHOOSES), "stablehlo: select"),
    ((ELEMENTWISE, VIEW, CHEAP, CHOOSES), "stablehlo: convert"),
    (
        (ELEMENTWISE,),
        """
        stablehlo: reduce_precision
        chlo: _asin_acos_kernel acos acosh asin asinh atan atanh bessel_i1e broadcast_add
        broadcast_and broadcast_atan2 broadcast_compare broadcast_complex broadcast_divide
        broadcast_maximum broadcast_minimum broadcast_multiply broadcast_next_after broadcast_or
        broadcast_polygamma broadcast_power broadcast_remainder broadcast_select
        broadcast_shift_left broadcast_shift_right_arithmetic broadcast_shift_right_logical
        broadcast_subtract broadcast_xor broadcast_zeta conj cosh digamma erf erf_inv erfc is_inf
        is_neg_inf is_pos_inf lgamma mulhi next_after polygamma sinh tan zeta""",
    ),
    ((MOVES, CHOOSES, VIEW, CHEAP), "stablehlo: broadcast_in_dim dynamic_slice reshape slice"),
    ((MOVES, CHOOSES, CHEAP), "stablehlo: concatenate pad reverse transpose"),
    (
        (MOVES, CHOOSES),
        """
        stablehlo: broadcast dynamic_broadcast_in_dim dynamic_gather dynamic_pad dynamic_reshape
        dynamic_update_slice gather real_dynamic_slice""",
    ),
    ((VIEW, CHEAP, CHOOSES), "stablehlo: constant iota  chlo: constant constant_like"),
    (
        (CHOOSES,),
        """
        stablehlo: bitcast_convert case composite create_token custom_call dynamic_iota
        get_dimension_size get_tuple_element if optimization_barrier return rng_bit_generator
        scatter set_dimension_size sort tuple while""",
    ),
    ((CHOOSES, OBSERVED), "stablehlo: rng"),
    ((OBSERVED,), "stablehlo: infeed outfeed recv send"),
    (
        (),
        """
        stablehlo: after_all all_gather all_reduce all_to_all async_done async_start batch_norm_grad
        batch_norm_inference batch_norm_training cholesky collective_broadcast collective_permute
        collective_reduce convolution cross-replica-sum dot dot_general dynamic_conv einsum fft map
        partition_id reduce reduce_scatter reduce_window replica_id select_and_scatter
        torch_index_select triangular_solve unary_einsum uniform_dequantize uniform_quantize
        chlo: ragged_dot scan top_k""",
    ),
]

OPS: set[str] = set()
"""All ops of StableHLO and CHLO."""


def _read_table() -> None:
    for traits, names in _TABLE:
        for word in names.split():
            if word.endswith(":"):
                dialect = word[:-1]
                continue
            for trait in (OPS, *traits):
                trait.add(f"{dialect}.{word}")


_read_table()

DATA = {
    "stablehlo.dynamic_broadcast_in_dim": slice(1),
    "stablehlo.dynamic_gather": slice(1),
    "stablehlo.dynamic_pad": slice(2),
    "stablehlo.dynamic_reshape": slice(1),
    "stablehlo.dynamic_slice": slice(1),
    "stablehlo.dynamic_update_slice": slice(2),
    "stablehlo.gather": slice(1),
    "stablehlo.real_dynamic_slice": slice(1),
    "stablehlo.select": slice(1, None),
}
"""The operands whose elements an op that MOVES takes; all of them for one that is not here."""
