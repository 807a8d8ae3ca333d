"""Write a table of every op of StableHLO and CHLO, its derivatives and its batch.

`make docs` makes the page `rules.md` of it, and `python -m pullback.tools.rule_table` prints it.
"""

from __future__ import annotations

import inspect
import re
import sys
from typing import Any

from pullback import _jax
from pullback.autodiff import registry
from pullback.autodiff.batch_rules import BATCHES
from pullback.autodiff.registry import NONDIFFERENTIABLE, RULES

HEADER = """# Rules

Made by `make docs` from the rule table. One row is one op.

- **jvp** and **transpose**: forward and reverse mode, of any order.
- **vmap**: one op for a batch; or **loop**, one item after the other. **shared**: it has no operand
  that could be batched.
- **zero**: the derivative is zero wherever it exists, and the reason.
- **error**: a value that depends on the inputs, or on the batch, must not reach the op; if it does,
  the pass stops with a `MissingRuleError` that names the op and the user's line. For derivatives,
  the last column has the reason; in a batch, it is that of tokens, quantized numbers, or shapes.

A derivative op of ours (`pullback.custom_jvp_call`, `pullback.custom_vjp_call`,
`pullback.linear_call`) is a `stablehlo.composite`. A composite of any other name counts as its
decomposition, unless a rule is registered for that name: see [extending.md](extending.md#rules).
`chlo.broadcast_add` and its like count as the op they name on operands that are broadcast first.
"""

WITHOUT_RULE = {
    "chlo._asin_acos_kernel": "an intermediate step of other ops, not to be written by anybody",
    "stablehlo.bitcast_convert": "reads bits, not numbers; zero of the sign and exponent alone",
    "stablehlo.collective_reduce": "no backend that we can test runs it",
    "stablehlo.infeed": "comes from outside of the program",
    "stablehlo.outfeed": "leaves the program",
    "stablehlo.recv": "comes from outside of the program",
    "stablehlo.rng": "draws at random; JAX has no rule either",
    "stablehlo.send": "leaves the program",
    "stablehlo.uniform_dequantize": "acts on quantized numbers",
    "stablehlo.uniform_quantize": "acts on quantized numbers",
}
WITHOUT_OPERANDS = {
    "chlo.constant",
    *(f"stablehlo.{name}" for name in "constant create_token iota partition_id replica_id".split()),
}
WITHOUT_BATCH = {
    f"stablehlo.{name}"
    for name in (
        "after_all infeed outfeed recv send uniform_dequantize uniform_quantize dynamic_iota"
    ).split()
}
_NOT_VALUES = frozenset({"stablehlo.return"})
_NEWER = {"StableHLO": {"stablehlo.collective_reduce"}}  # not in every JAX we support
_IMPLICIT_BROADCASTS = re.compile(r"chlo\.broadcast_")


def report() -> str:
    """Return the text of the page."""
    registry.load_all()
    parts = [HEADER]
    for title, dialect in (("StableHLO", _jax.stablehlo), ("CHLO", _jax.chlo)):
        parts.append(f"\n## {title}\n")
        parts.append("| op | jvp | transpose | vmap | family, or why not |\n")
        parts.append("|---|---|---|---|---|\n")
        parts += [_row(name) for name in op_names(dialect, title)]
    return "".join(parts)


def op_names(dialect: Any, title: str) -> list[str]:
    """Return a dialect's ops, the same for every supported JAX, without implicit broadcasts."""
    members = (cls for _, cls in inspect.getmembers(dialect, inspect.isclass))
    names = {cls.OPERATION_NAME for cls in members if hasattr(cls, "OPERATION_NAME")}
    names |= _NEWER.get(title, set())
    return sorted(n for n in names if n not in _NOT_VALUES and not _IMPLICIT_BROADCASTS.match(n))


def _row(name: str) -> str:
    rule = RULES.get(name)
    if rule is not None:
        return _cells(name, "yes", "yes", _batch(name), rule.family)
    if name in NONDIFFERENTIABLE:
        return _cells(name, "zero", "zero", _batch(name), NONDIFFERENTIABLE[name])
    return _cells(name, "error", "error", _batch(name), WITHOUT_RULE[name])


def _batch(name: str) -> str:
    if name in BATCHES:
        return "yes"
    if name in WITHOUT_OPERANDS:
        return "shared"
    return "error" if name in WITHOUT_BATCH else "loop"


def _cells(*cells: str) -> str:
    return "| " + " | ".join([f"`{cells[0]}`", *cells[1:]]) + " |\n"


if __name__ == "__main__":
    sys.stdout.write(report())
