"""Random numbers of the backend."""

from __future__ import annotations

from jax import lax

from pullback.as_jax.table import Array, OpInJax, evaluates


@evaluates("stablehlo.rng_bit_generator")
def _rng_bit_generator(op: OpInJax, state: Array) -> list[Array]:
    algorithm = getattr(lax.RandomAlgorithm, f"RNG_{op.word('rng_algorithm')}")
    shape = op.operation.results[1].type.shape
    return list(lax.rng_bit_generator(state, tuple(shape), dtype=op.dtypes[1], algorithm=algorithm))


@evaluates("stablehlo.rng")
def _rng(op: OpInJax, a: Array, b: Array, shape: Array) -> Array:
    if op.word("rng_distribution") != "UNIFORM":
        raise op.refusal(f"of the distribution {op.word('rng_distribution')}")
    return lax.rng_uniform(a, b, op.shape)
