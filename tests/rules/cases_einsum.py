"""Records of einsum and unary_einsum; the latter runs as a product with one."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from tests.rules.record import Arg, Case, cplx, real, tensor

UNARY = re.compile(r'(%\w+) = stablehlo.unary_einsum (%\w+), config = "(.*)" : \((tensor<.*>)\)')


def as_binary(text: str) -> str:
    """XLA's importer has no unary_einsum: StableHLO's own canonical form instead."""

    def rewritten(match: re.Match[str]) -> str:
        name, x, config, type = match.groups()
        element = "complex<f64>" if "complex" in type else "f64"
        one = "(1.0, 0.0)" if "complex" in type else "1.0"
        scalar = f"%one_{name[1:]}"
        return (
            f"{scalar} = stablehlo.constant dense<{one}> : tensor<{element}>\n"
            f'{name} = stablehlo.einsum {scalar}, {x}, config = ",{config}" '
            f": (tensor<{element}>, {type})"
        )

    return UNARY.sub(rewritten, text)


def einsum(
    config: str,
    args: list[Arg],
    result: tuple[int, ...],
    label: str,
    reference: Callable[..., Any] | None = None,
) -> Case:
    """One sum; compared with jnp.einsum unless there is a reference that says more."""
    element = "complex<f64>" if args[0].complex else "f64"
    op = "stablehlo.einsum" if len(args) == 2 else "stablehlo.unary_einsum"
    types = [tensor(arg.shape, element) for arg in args]
    names = [f"%x{i}" for i in range(len(args))]
    signature = ", ".join(f"{name}: {type}" for name, type in zip(names, types, strict=True))
    out = tensor(result, element)
    text = f"""func.func public @main({signature}) -> {out} {{
      %0 = {op} {", ".join(names)}, config = "{config}" : ({", ".join(types)}) -> {out}
      return %0 : {out} }}"""
    expected = reference or (lambda *xs: jnp.einsum(config, *xs))
    return Case(op, text, args, label, expected, rewrite=as_binary)


def filled_diagonal(x: Any, y: Any) -> Any:
    return jnp.eye(2)[:, :, None] * (x @ y)[:, None, :]


CASES = [
    einsum("ab,bc->ac", [real(2, 3), real(3, 4)], (2, 4), "matrices"),
    einsum("ab,cb->ca", [real(2, 3), real(4, 3)], (4, 2), "transposed"),
    einsum("Bab,aBc->cBa", [real(2, 3, 4), real(3, 2, 5)], (5, 2, 3), "batched"),
    einsum("cb,ba", [real(4, 3), real(3, 2)], (2, 4), "no-arrow", lambda x, y: (x @ y).T),
    einsum("a...,...b", [real(2, 5), real(5, 3)], (5, 2, 3), "no-arrow-ellipsis"),
    einsum(",->", [real(), real()], (), "scalars"),
    einsum(",ab->ba", [real(), real(2, 3)], (3, 2), "scalar"),
    einsum("a,b->ab", [real(2), real(3)], (2, 3), "outer"),
    einsum("ab,ab->ab", [real(2, 3), real(2, 3)], (2, 3), "elementwise"),
    einsum("abz,bcw->ca", [real(2, 3, 5), real(3, 4, 2)], (4, 2), "summed-out"),
    einsum("ab,cd->", [real(2, 3), real(4, 2)], (), "all-summed-out"),
    einsum("...ab,...bc->...ac", [real(6, 5, 2, 3), real(5, 3, 4)], (6, 5, 2, 4), "ellipsis"),
    einsum("...a,ab->...b", [real(3), real(3, 2)], (2,), "ellipsis-of-nothing"),
    einsum("a...,...->...a", [real(4, 3, 1), real(2, 1, 5)], (2, 3, 5, 4), "ellipsis-stretched"),
    einsum(
        "...ab,...b->a",
        [real(5, 2, 3), real(5, 3)],
        (2,),
        "ellipsis-summed-out",
        lambda x, y: jnp.einsum("zab,zb->a", x, y),
    ),
    einsum("aab,bcc->ac", [real(2, 2, 3), real(3, 4, 4)], (2, 4), "diagonals"),
    einsum("aaa,a->", [real(3, 3, 3), real(3)], (), "diagonal-of-three"),
    einsum("ab,bc->aac", [real(2, 3), real(3, 4)], (2, 2, 4), "onto-diagonal", filled_diagonal),
    einsum(
        "ab,cb->ac",
        [real(2, 1), real(4, 3)],
        (2, 4),
        "stretched-and-summed",
        lambda x, y: jnp.broadcast_to(x, (2, 3)) @ y.T,
    ),
    einsum("ab,ab->ba", [real(1, 3), real(2, 1)], (3, 2), "stretched", lambda x, y: (x * y).T),
    einsum("ab,bc->ac", [real(2, 0), real(0, 3)], (2, 3), "empty-sum"),
    einsum("ab,bc->ca", [real(0, 3), real(3, 2)], (2, 0), "empty"),
    einsum("ab,bc->ac", [cplx(2, 3), cplx(3, 2)], (2, 2), "complex"),
    einsum("ab->a", [real(2, 3)], (2,), "sum"),
    einsum("abc->cab", [real(2, 3, 4)], (4, 2, 3), "transpose"),
    einsum("ba", [real(2, 3)], (3, 2), "no-arrow"),
    einsum("->", [real()], (), "scalar"),
    einsum("...a->a...", [real(2, 3, 4)], (4, 2, 3), "ellipsis"),
    einsum("aab->b", [real(3, 3, 2)], (2,), "trace"),
    einsum("aa->a", [real(3, 3)], (3,), "diagonal"),
    einsum("a->aa", [real(3)], (3, 3), "onto-diagonal", jnp.diag),
    einsum("ab->b", [real(0, 3)], (3,), "empty-sum"),
    einsum("ab->ba", [real(0, 3)], (3, 0), "empty"),
    einsum("ab->b", [cplx(2, 3)], (3,), "complex"),
]
