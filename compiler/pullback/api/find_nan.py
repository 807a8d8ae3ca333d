"""`find_nan`: the op in which a NaN is born."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pullback.api import program_in_jax
from pullback.api.transforms import program_of
from pullback.program.nans.report import NanReport
from pullback.program.nans.search import search
from pullback.program.symbolic import SymbolicProgram


def find_nan(fun: Callable[..., Any], infs: bool = False) -> Callable[..., NanReport | None]:
    """Return a function that says where the first NaN comes from that reaches a result of `fun`.

    The program is run once; if no result has a NaN, that is all. Otherwise it is run again block by
    block, with every value in it at hand: effects such as prints happen again. A NaN that the
    program throws away, as by `jnp.where`, is none.

    Args:
      fun: a function that JAX can trace, a function made by `pb.grad` and the like, or a Program.
      infs: look for infinities as well: for the first op that makes one of finite operands.

    Returns:
      A function of the arguments of `fun`. It returns None, or a `NanReport`, which prints well.

    Raises:
      PullbackError: the NaN does not come again where the program runs in parts.
    """

    def found(*args: Any, **kwargs: Any) -> NanReport | None:
        program = program_of(fun, args, kwargs)
        if isinstance(program, SymbolicProgram):
            program = program.with_shapes(*args, **kwargs)
        operands = program.flatten(args, kwargs)
        program_in_jax.check_operands(program, operands[len(program.constants) :])
        return search(program, operands, infs)

    return found
