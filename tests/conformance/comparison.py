"""One case: traced, differentiated both ways, batched, and run beside JAX in one module."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import pullback as pb
from tests import folded
from tests.conformance.harnesses import Case

STAGES = ("import", "jvp", "vjp", "vmap")
ORDER = 3
"""Of the last term at the stage "jet", Taylor mode."""

EQUAL = "equal"
NOTHING = "nothing to ask"
BOTH_REFUSE = "both refuse"
ONLY_JAX_REFUSES = "only JAX refuses"
DIFFERS = "differs"
FAILS = "fails"
FINE = frozenset({EQUAL, NOTHING, BOTH_REFUSE})

# Relative to the largest element of a result: both sides run the same formulas, so that what is
# left is rounding, which changes with the order of fused operations.
TOLERANCES = {"float64": 1e-10, "complex128": 1e-10, "float32": 2e-5, "complex64": 2e-5}
TOLERANCES |= {"float16": 4e-3, "bfloat16": 3e-2}
FAST = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}

Leaves = Sequence[Any]


class Verdict(NamedTuple):
    """How one stage of one case ended, and why if the results are not equal."""

    status: str
    reason: str = ""


class Problem:
    """A function of leaves and where to differentiate it.

    Attributes:
      values: the leaves, the tangents of inexact leaves, the cotangents of inexact results, and
        the further terms of the series that begin with the tangents.
    """

    def __init__(self, case: Case, stages: Sequence[str] = STAGES):
        self.case = case
        leaves, self.tree = jax.tree.flatten(case.make())
        leaves = [leaf if _is_key(leaf) else jnp.asarray(leaf) for leaf in leaves]
        self.outs = jax.eval_shape(self.function, *leaves)
        self.inexact = [i for i, leaf in enumerate(leaves) if _is_inexact(leaf)]
        random = np.random.default_rng(case.seed)
        tangents = [_direction(leaves[i], random) for i in self.inexact]
        cotangents = [_direction(out, random) for out in self.outs if _is_inexact(out)]
        series = [[_direction(leaves[i], random) for i in self.inexact] for _ in range(ORDER - 1)]
        self.values = (leaves, tangents, cotangents, series)
        # There is nothing to ask where there is no tangent, or no argument that has a batch.
        asked = {"import": True, "vmap": bool(leaves)}
        self.stages = [each for each in stages if asked.get(each, all(map(len, self.values)))]

    def function(self, *leaves: Any) -> tuple[Any, ...]:
        """The case's function, from leaves to leaves."""
        return tuple(jax.tree.leaves(self.case.function(*jax.tree.unflatten(self.tree, leaves))))

    def of_inexact(self, leaves: Leaves) -> Callable[..., Any]:
        """The function of its inexact leaves, of which it gives the inexact results."""

        def function(*chosen: Any) -> Leaves:
            full = list(leaves)
            for position, value in zip(self.inexact, chosen, strict=True):
                full[position] = value
            return [out for out in self.function(*full) if _is_inexact(out)]

        return function

    def theirs(
        self, stage: str, leaves: Leaves, tangents: Leaves, cotangents: Leaves, series: Leaves
    ) -> Leaves:
        """What JAX gives at a stage."""
        chosen = [leaves[i] for i in self.inexact]
        if stage == "import":
            return self.function(*leaves)
        if stage == "jvp":
            return jax.jvp(self.of_inexact(leaves), chosen, tangents)[1]
        if stage == "jet":
            return nested(self.of_inexact(leaves), [chosen, tangents, *series])
        if stage == "vmap":
            items = [self.function(*leaves), self.function(*map(_turned, leaves))]
            return jax.tree.map(lambda *each: jnp.stack(each), *items)

        def pulled(*chosen: Any) -> Leaves:
            return jax.vjp(self.of_inexact(leaves), *chosen)[1](list(cotangents))

        return jax.jvp(pulled, chosen, tangents)[1] if stage == "second" else pulled(*chosen)

    def ours(self, stage: str, program: pb.Program, values: Sequence[Leaves]) -> Leaves:
        """What the program of a stage gives."""
        leaves, tangents, cotangents, series = values
        if stage == "import":
            return program(*leaves)
        if stage == "jvp":
            return jax.tree.leaves(program(*leaves, *tangents)[1])
        if stage == "jet":
            rows = map(list, zip(tangents, *series, strict=True))
            by_result = program(*leaves, *rows)[1]
            return [row[k] for k in range(ORDER) for row in by_result if row is not None]
        if stage == "vmap":
            return program(*(jnp.stack([leaf, _turned(leaf)]) for leaf in leaves))
        rest = iter(cotangents)
        args = *leaves, tuple(next(rest) if _is_inexact(o) else None for o in self.outs)
        return program(*args, *tangents)[1][1] if stage == "second" else program(*args)[1]

    def derive(self, stage: str, program: pb.Program) -> pb.Program:
        """The program of a stage."""
        if stage == "import":
            return program
        if stage == "vmap":
            return program.vmap(axis_size=2)
        if stage == "jvp":
            return program.jvp(self.inexact)
        if stage == "jet":
            return program.jet(ORDER, self.inexact)
        program = program.vjp(self.inexact)
        return program.jvp(self.inexact) if stage == "second" else program


def nested(function: Callable[..., Leaves], terms: Sequence[Leaves]) -> list[Any]:
    """The derivatives of a function along a curve, by forward mode of forward mode of ….

    Args:
      function: of arrays, a list of arrays.
      terms: the arguments, and the derivatives of each along the curve.
    """

    def derivative(order: int, *terms: Leaves) -> list[Any]:
        if order == 0:
            return list(function(*terms[0]))
        below = functools.partial(derivative, order - 1)
        return jax.jvp(below, terms[:order], terms[1 : order + 1])[1]

    return [out for k in range(1, len(terms)) for out in derivative(k, *terms)]


def compare(
    case: Case, trace: Callable[..., Any] = pb.trace, stages: Sequence[str] = STAGES
) -> dict[str, Verdict]:
    """The verdict of each stage, of the program that `trace(function)(*leaves)` makes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        problem = Problem(case, stages)
        verdicts = {stage: Verdict(NOTHING) for stage in stages}
        verdicts |= _compare(problem, problem.stages, trace)
    rounds = not jax.config.jax_enable_x64 and "jet" in stages
    if rounds and verdicts["jet"].status == DIFFERS:
        with jax.enable_x64(True):
            wide = compare(_widened(case), trace, ("jet",))["jet"]
        if wide.status == EQUAL:
            return verdicts | {"jet": Verdict(EQUAL, f"in 64 bits; {verdicts['jet'].reason}")}
    return verdicts


def _widened(case: Case) -> Case:
    """The case with arguments of 64 bits, where higher derivatives show a formula, not rounding."""

    def widen(leaf: Any) -> Any:
        if _is_key(leaf) or not _is_inexact(np.asarray(leaf)):
            return leaf
        return np.asarray(leaf, np.complex128 if np.iscomplexobj(leaf) else np.float64)

    return dataclasses.replace(case, make=lambda: jax.tree.map(widen, case.make()))


def _compare(problem: Problem, wanted: Sequence[str], trace: Any) -> dict[str, Verdict]:
    programs, refusals = _derive_all(problem, wanted, trace)
    verdicts: dict[str, Verdict] = {}

    def everything(values: Sequence[Leaves]) -> dict[str, Any]:
        results = {}
        for stage in wanted:
            try:
                theirs = list(map(_plain, problem.theirs(stage, *values)))
            except Exception as error:
                verdicts[stage] = _refused(stage, error, refusals)
                continue
            if stage in refusals:
                verdicts[stage] = _failed(problem, stage, refusals[stage])
                continue
            ours = list(map(_plain, problem.ours(stage, programs[stage], values)))
            results[stage] = ours, theirs
        return results

    try:
        compiled = folded.lower(everything, problem.values).compile(FAST)
    except Exception:
        cannot = {
            stage: _refused(stage, error, refusals) for stage, error in _fail(problem, wanted)
        }
        if not cannot:
            raise
        return cannot | _compare(problem, [each for each in wanted if each not in cannot], trace)
    results = jax.device_get(compiled())
    return verdicts | {stage: _judge(*pair) for stage, pair in results.items()}


def _fail(problem: Problem, stages: Sequence[str]) -> Iterator[tuple[str, Exception]]:
    """The stages that JAX may trace and cannot lower, and what it raises."""
    for stage in stages:
        try:
            jax.jit(lambda values, stage=stage: problem.theirs(stage, *values)).lower(
                problem.values
            )
        except Exception as error:
            yield stage, error


def _derive_all(
    problem: Problem, wanted: Sequence[str], trace: Any
) -> tuple[dict[str, Any], dict[str, str]]:
    """Our program of each stage, or why there is none."""
    programs: dict[str, Any] = {}
    refusals: dict[str, str] = {}
    for stage in wanted:
        try:
            source = programs.get("import") or trace(problem.function)(*problem.values[0])
            programs[stage] = problem.derive(stage, source)
        except Exception as error:
            refusals[stage] = describe(error)
    return programs, refusals


def _failed(problem: Problem, stage: str, reason: str) -> Verdict:
    """What it means that we refuse: JAX may trace what it cannot lower."""
    for _, error in _fail(problem, [stage]):
        return Verdict(BOTH_REFUSE, describe(error))
    return Verdict(FAILS, reason)


def _refused(stage: str, error: Exception, refusals: dict[str, str]) -> Verdict:
    if stage in refusals:
        return Verdict(BOTH_REFUSE, describe(error))
    return Verdict(ONLY_JAX_REFUSES, describe(error))


def _judge(ours: Leaves, theirs: Leaves) -> Verdict:
    if len(ours) != len(theirs):
        return Verdict(DIFFERS, f"{len(ours)} results instead of {len(theirs)}")
    for found, expected in zip(ours, theirs, strict=True):
        if difference := _difference(found, expected):
            return Verdict(DIFFERS, difference)
    return Verdict(EQUAL)


def _difference(found: np.ndarray, expected: np.ndarray) -> str:
    """What is different between two arrays; nothing if they agree."""
    if (found.dtype, found.shape) != (expected.dtype, expected.shape):
        return f"{found.dtype}{found.shape} instead of {expected.dtype}{expected.shape}"
    if not _is_inexact(expected):
        return "" if np.array_equal(found, expected) else "other integers"
    tolerance = TOLERANCES[expected.dtype.name]
    wide = np.complex128 if np.iscomplexobj(expected) else np.float64
    found, expected = found.astype(wide), expected.astype(wide)
    if not np.array_equal(np.isfinite(found), np.isfinite(expected)):
        return (
            f"{_count(~np.isfinite(found))} not finite instead of {_count(~np.isfinite(expected))}"
        )
    finite = np.isfinite(expected)
    if not np.array_equal(found[~finite], expected[~finite], equal_nan=True):
        return "other infinities"
    scale = np.max(np.abs(expected[finite]), initial=0)
    error = np.max(np.abs(found[finite] - expected[finite]), initial=0)
    return f"error {error:.1e} of {scale:.1e}" if error > tolerance * scale else ""


def _count(mask: np.ndarray) -> str:
    return f"{int(mask.sum())} of {mask.size}"


def describe(error: Exception) -> str:
    """The kind of an error, and the line that says most."""
    lines = str(error).strip().splitlines() or [""]
    # An error that came through MLIR's bindings has the Python error that caused it at its end.
    telling = lines[-1] if "Traceback" in lines[0] else lines[0]
    return f"{type(error).__name__}: {telling[:160]}"


def _turned(leaf: Any) -> Any:
    """Another item of a batch: the same numbers in other places; of a scalar, the same number."""
    if _is_key(leaf) and not leaf.ndim:
        return jax.random.fold_in(leaf, 1)
    return jnp.flip(leaf)


def _direction(like: Any, random: np.random.Generator) -> jax.Array:
    value = random.standard_normal(like.shape)
    if jnp.issubdtype(like.dtype, jnp.complexfloating):
        value = value + 1j * random.standard_normal(like.shape)
    return jnp.asarray(value, like.dtype)


def _is_key(value: Any) -> bool:
    return jnp.issubdtype(getattr(value, "dtype", None), jax.dtypes.extended)


def _is_inexact(value: Any) -> bool:
    return jnp.issubdtype(value.dtype, jnp.inexact)


def _plain(value: Any) -> Any:
    return jax.random.key_data(value) if _is_key(value) else value
