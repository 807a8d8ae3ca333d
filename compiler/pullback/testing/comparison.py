"""Compare the derivatives that a rule gives with the slopes of its function."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import pullback
from pullback.errors import MissingRuleError, headline
from pullback.testing.findings import Finding
from pullback.testing.judgements import Limits, Outcome, Tally, judged
from pullback.testing.points import Point
from pullback.testing.slopes import LEAST, Draw, Slope, inner, paired, reals
from pullback.testing.subjects import Derivative, Subject, compiled, described, scale_of

ROUNDING = 30.0
"""Times the precision: a rule that rounds is apart by less."""

DIGITS = 100.0
"""Times the precision: values of a rule and its function that differ by less are equal."""

COARSEST = 0.5
"""The largest tolerance: with 8 bits, signs and factors of two are told apart."""


def _ways(
    rule: Derivative, exact: Derivative | None, operands: Any, directions: Any
) -> Iterator[tuple[bool, Any]]:
    """Yield what a rule gives, and what it gives in 64 bits where it rounds and can be widened."""
    yield False, rule(operands, directions)
    if exact is not None:
        try:
            found = exact(operands, directions)
        except Exception:  # an equation is for narrow types alone
            return
        yield True, found


Measured = tuple[int, Any, list[Slope]]
"""An operand, a direction, and the slopes of all results."""


@dataclass
class Comparison:
    """The checks of one rule by one of its derivatives, over points.

    Attributes:
      subject: the function with the rule.
      blank: a finding to fill in.
      tolerance: the largest relative difference.
      draw: random numbers.
      order: that of the derivative.
      intended: the rule is not meant to be the derivative.
    """

    subject: Subject
    blank: Finding
    tolerance: float
    draw: Draw
    order: int = 1
    intended: bool = False
    tallies: dict[str, Tally] = field(default_factory=dict)
    typical: float = 0.0
    broken: set[str] = field(default_factory=set)

    def tally(self, check: str) -> Tally:
        """Return the tally of a check, which is begun if it is new."""
        if check not in self.tallies:
            self.tallies[check] = Tally(replace(self.blank, check=self.name_of(check)))
        return self.tallies[check]

    def name_of(self, check: str) -> str:
        """Return the words for a check at this order."""
        if self.order == 1 or check in ("symmetry", "points"):
            return check
        orders = {2: "second", 3: "third"}
        return f"{orders.get(self.order, f'{self.order}th')} derivative"

    def at(self, point: Point) -> None:
        """Compare at one point."""
        modes = [mode for mode in self.subject.modes if mode not in self.broken]
        try:
            values = jax.block_until_ready(self.subject.plain(*point.operands))
            measured = [] if self.intended else list(self._measured(point))
        except Exception as error:
            reason = f"the function fails there, or near it: {headline(error)}"
            for mode in modes:
                self.tally(mode).skip(reason, **self._place(point))
            return
        for mode in modes:
            with self._blaming(mode, point), np.errstate(all="ignore"):
                check = self._forward if mode == "jvp" else self._backward
                check(point, values, measured)

    @contextlib.contextmanager
    def _blaming(self, mode: str, point: Point) -> Iterator[None]:
        """Run the body; what the rule raises is a failure, or of higher order a doubt."""
        try:
            yield
        except MissingRuleError as error:  # of a module, which has what its derivatives need
            self.broken.add(mode)
            self.tally(mode).skip(headline(error), **self._place(point))
        except Exception as error:
            self.broken.add(mode)
            tally = self.tally(mode)
            say = tally.fail if self.order == 1 else tally.skip
            say(f"the rule raises {headline(error)}", **self._place(point))

    def _measured(self, point: Point) -> Iterator[Measured]:
        for i in self.subject.moved:
            for tangent in self.draw.directions(point.operands[i], few=point.is_special):
                slopes = self.subject.slopes(point.operands, i, tangent)
                if not point.is_special:
                    sizes = [_largest(slope.value) for slope in slopes]
                    self.typical = max([self.typical, *sizes])
                yield i, tangent, list(map(self._resolved, slopes))

    def _resolved(self, slope: Slope) -> Slope:
        """Return a slope without a bound on its error where slopes to neighbours are others."""
        least = ROUNDING * max(self.subject.epsilon, LEAST) * self.typical
        is_lost = slope.grain > np.fmax(0.5 * np.abs(slope.value), least)
        error, grain = (np.where(is_lost, np.inf, each) for each in (slope.error, slope.grain))
        return replace(slope, error=error, grain=grain)

    def _limits(self, scale: float, values: Any, is_exact: bool) -> Limits:
        """Return the limits of a rule, or of the same in 64 bits, whose constants may be narrow."""
        narrow = self.subject.epsilon
        epsilon = float(np.finfo(np.float64).eps) if is_exact else narrow
        return Limits(
            tolerance=max(self.tolerance, min(8 * narrow, COARSEST)),
            floor=ROUNDING * epsilon * self.typical + epsilon * _largest(values) / scale,
            resolution=DIGITS * epsilon * _largest(values) / scale,
            iterates=self.subject.iterates,
            typical=self.typical,
            most=self.subject.most / 16,
        )

    def _forward(self, point: Point, values: Any, measured: list[Measured]) -> None:
        """Compare tangents of results, by each operand alone."""
        tally, subject = self.tally("jvp"), self.subject
        if not measured:
            tangents = [self.draw.numbers(point.operands[i]) for i in subject.moved]
            self._values(point, values, subject.push(point.operands, tangents)[0])
            tally.sure = True
        for i, tangent, slopes in measured:
            directions = self._alone(point, i, tangent)
            for is_exact, (results, found) in _ways(
                subject.push, subject.exact_push, point.operands, directions
            ):
                if not is_exact:
                    self._values(point, values, results)
                for k, (rule, slope) in enumerate(zip(reals(found), slopes, strict=True)):
                    if _is_ambiguous(tangent, slope, rule):
                        continue
                    error = np.where(_known(measured, k), slope.error, np.inf)
                    slope = replace(slope, error=error + (0.0 if is_exact else slope.grain))
                    scale, value = scale_of(point.operands[i]), reals([values[k]])[0]
                    limits = self._limits(scale, value, is_exact)
                    outcome = judged(rule, slope, limits, _largest(slope.value))
                    self._note(tally, outcome, rule, slope, point, i, k)

    def _alone(self, point: Point, position: int, tangent: Any) -> list[Any]:
        moved = self.subject.moved
        return [
            tangent if i == position else np.zeros_like(np.asarray(point.operands[i]))
            for i in moved
        ]

    def _backward(self, point: Point, values: Any, measured: list[Measured]) -> None:
        """Compare the inner products of cotangents and directions, by each operand alone."""
        tally, subject = self.tally("vjp"), self.subject
        for k, value in enumerate(values):
            ct = np.asarray(self.draw.numbers(value, signed=True))
            mask = _known(measured, k)
            if measured:
                is_complex = jnp.issubdtype(value.dtype, jnp.complexfloating)
                ct = np.where(mask.all(-1) if is_complex else mask, ct, 0).astype(ct.dtype)
            cts = [ct if n == k else np.zeros_like(np.asarray(v)) for n, v in enumerate(values)]
            for is_exact, (results, found) in _ways(
                subject.pull, subject.exact_pull, point.operands, cts
            ):
                if not is_exact:
                    self._values(point, values, results)
                    self._types(found)
                tally.sure = tally.sure or not measured
                self._pulled(tally, point, measured, found, (k, value, ct, mask), is_exact)

    def _pulled(
        self,
        tally: Tally,
        point: Point,
        measured: list[Measured],
        found: Any,
        given: tuple[int, Any, np.ndarray, np.ndarray],
        is_exact: bool,
    ) -> None:
        """Compare cotangents of operands for that of one result."""
        k, value, ct, mask = given
        places = {i: n for n, i in enumerate(self.subject.moved)}
        for i, tangent, slopes in measured:
            if mask.size and not mask.any():  # then the cotangent is zero, and all rules agree
                tally.skip(_unknown(slopes[k], point.operands[i]), **self._place(point))
                continue
            pulled = found[places[i]]
            rule = np.asarray([inner(paired([pulled]), reals([tangent]))])
            if _is_ambiguous(tangent, slopes[k], rule):
                continue
            slope, size = _along(paired([ct])[0], slopes[k])
            if not is_exact:
                slope = replace(slope, error=slope.error + slope.grain)
            limits = self._limits(scale_of(point.operands[i]), reals([value])[0], is_exact)
            weight = float(np.abs(ct).sum())
            limits = replace(
                limits, floor=limits.floor * weight, resolution=limits.resolution * weight
            )
            outcome = judged(rule, slope, limits, size)
            if not np.all(np.isfinite(rule)) and not np.all(mask):
                continue  # 0 times an infinity
            self._note(tally, outcome, rule, slope, point, i, k)

    def _note(
        self,
        tally: Tally,
        outcome: Outcome,
        rule: np.ndarray,
        slope: Slope,
        point: Point,
        i: int,
        k: int,
    ) -> None:
        """Take down the outcome of one comparison."""
        stops = ": the function iterates, and where it stops may account for that"
        for flags, say, more in (
            (outcome.wrong, tally.fail, ""),
            (outcome.stopped, tally.hidden, stops),
        ):
            if np.any(flags):
                place = tuple(int(each) for each in np.argwhere(flags)[0])
                found, wanted, error = (float(a[place]) for a in (rule, slope.value, slope.error))
                say(
                    f"the rule gives {found:.6g}, and the slope is {_measure(wanted, error)}{more}",
                    at_fault=self._fault(i, k, place if tally is self.tallies.get("jvp") else ()),
                    found=found,
                    wanted=wanted,
                    error=error,
                    **self._place(point),
                )
        if rule.size and np.all(outcome.unsure):
            tally.skip(_unknown(slope, point.operands[i]), **self._place(point))
        else:
            tally.sure = True

    def _fault(self, i: int, k: int, place: tuple[int, ...]) -> str:
        element = f"{list(place)}" if place else ""
        return f"argument {self.subject.names[i]}, {self.subject.results[k]}{element}"

    def _place(self, point: Point) -> dict[str, Any]:
        return {"point": f"{described(point.operands, self.subject.names)} ({point.label})"}

    def _values(self, point: Point, wanted: Any, found: Any) -> None:
        """Compare the results that a rule returns with those of the function."""
        if self.order > 1 or point.is_special:
            return
        tally = self.tally("value")
        tally.sure = True
        epsilon = self.subject.epsilon
        for k, (value, expected) in enumerate(zip(reals(found), reals(wanted), strict=True)):
            finite = np.isfinite(expected)
            difference = np.where(finite, np.abs(value - np.where(finite, expected, 0)), 0)
            if not difference.max(initial=0.0) > min(DIGITS * epsilon, COARSEST) * max(
                _largest(expected), np.finfo(np.float64).tiny
            ):
                continue
            place = np.unravel_index(np.argmax(difference), difference.shape)
            numbers = float(value[place]), float(expected[place])
            is_close = difference.max() <= 0.1 * _largest(expected)
            say = tally.hidden if self.subject.iterates and is_close else tally.fail
            say(
                "the rule returns {:.6g}, and the function {:.6g}".format(*numbers),
                at_fault=self.subject.results[k],
                found=numbers[0],
                wanted=numbers[1],
                **self._place(point),
            )

    def _types(self, cotangents: Any) -> None:
        """Notice cotangents that have fewer digits than their arguments, and other shapes."""
        if self.order > 1:
            return
        tally = self.tally("types")
        tally.sure = True
        for i, found in zip(self.subject.moved, cotangents, strict=True):
            wanted = jax.typeof(self.subject.example[i])
            narrow = jnp.finfo(found.dtype).eps > jnp.finfo(wanted.dtype).eps
            if narrow or found.shape != wanted.shape:
                tally.fail(
                    f"its cotangent has the type {found.dtype}{list(found.shape)}, and the "
                    f"argument {wanted.dtype}{list(wanted.shape)}",
                    at_fault=f"argument {self.subject.names[i]}",
                )

    def linearity(self, point: Point) -> None:
        """Compare the derivative in a sum of directions with the sum of derivatives."""
        for mode in self.subject.modes:
            if mode in self.broken or self.intended:
                continue
            with self._blaming(mode, point):
                self._linear(point, mode)

    def _linear(self, point: Point, mode: str) -> None:
        take, like = self._mode(point, mode)
        one, two = ([self.draw.numbers(x, signed=True) for x in like] for _ in range(2))
        both = [(2 * a - 3 * b).astype(a.dtype) for a, b in zip(one, two, strict=True)]
        parts = zip(reals(take(one)), reals(take(two)), strict=True)
        sums = [(2 * a - 3 * b, np.fmax(np.abs(2 * a), np.abs(3 * b))) for a, b in parts]
        names = self.subject.results
        if mode == "vjp":
            names = tuple(f"argument {self.subject.names[i]}" for i in self.subject.moved)
        self._equal(
            "linearity", f"{mode} of a sum of directions", names, reals(take(both)), sums, point
        )

    def _mode(self, point: Point, mode: str) -> tuple[Callable[[Any], Any], list[Any]]:
        subject, operands = self.subject, point.operands
        if mode == "jvp":
            return lambda t: subject.push(operands, t)[1], [operands[i] for i in subject.moved]
        return lambda ct: subject.pull(operands, ct)[1], subject.plain(*operands)

    def _equal(
        self,
        check: str,
        what: str,
        names: tuple[str, ...],
        found: list[np.ndarray],
        wanted: list[tuple[np.ndarray, np.ndarray]],
        point: Point,
    ) -> None:
        """Compare numbers that both come from the rule; the wanted ones have a size each."""
        tally, digits = self.tally(check), DIGITS * self.subject.epsilon
        floor = digits * max((_largest(size) for _, size in wanted), default=0.0)
        for name, value, (expected, size) in zip(names, found, wanted, strict=True):
            tally.sure = True
            with np.errstate(all="ignore"):
                size = np.fmax(size, SMALL_PART * _largest(size))
                most = max(self.tolerance, digits) * size + floor
                wrong = np.isfinite(expected) & ~(np.abs(value - expected) <= most)
            if np.any(wrong):
                place = tuple(np.argwhere(wrong)[0])
                numbers = float(value[place]), float(expected[place])
                tally.fail(
                    "the {} is {:.6g}, and {:.6g} was expected".format(what, *numbers),
                    at_fault=name,
                    found=numbers[0],
                    wanted=numbers[1],
                    **self._place(point),
                )

    def duality(self, point: Point) -> None:
        """Compare `<ct, J t>` with `<J^T ct, t>`."""
        if {"jvp", "vjp"} & self.broken or len(self.subject.modes) < 2:
            return
        with self._blaming("duality", point):
            push, primals = self._mode(point, "jvp")
            pull, results = self._mode(point, "vjp")
            cts = [self.draw.numbers(x, signed=True) for x in results]
            tangents = [self.draw.numbers(x, signed=True) for x in primals]
            pulled, pushed = pull(cts), reals(push(tangents))
            for n, i in enumerate(self.subject.moved):
                alone = [t if m == n else np.zeros_like(t) for m, t in enumerate(tangents)]
                pushed = reals(push(alone))
                left = inner(paired(cts), pushed)
                size = inner(*([*map(np.abs, each)] for each in (paired(cts), pushed)))
                right = inner(paired([pulled[n]]), reals([tangents[n]]))
                name = f"argument {self.subject.names[i]}"
                numbers = [np.asarray([right])], [(np.asarray([left]), np.asarray([size]))]
                self._equal("duality", "inner product of the vjp", (name,), *numbers, point)

    def symmetry(self, point: Point, count: int) -> None:
        """Compare the second derivative in two directions with that in the same, exchanged.

        Args:
          point: of the first derivative; its last operands are directions.
          count: of the operands that are differentiated by.
        """
        subject, mode = self.subject, self.subject.modes[0]
        if mode in self.broken or mode not in self.tallies or subject.iterates:
            return
        if self.tally(mode).finding.verdict != "ok":
            return
        moved = [point.operands[i] for i in subject.moved]
        one, two = ([self.draw.numbers(x, signed=True) for x in moved] for _ in range(2))

        def second(left: list[Any], right: list[Any]) -> list[np.ndarray]:
            if mode == "vjp":
                return [
                    np.asarray([inner(paired(subject.pull(point.operands, left)[1]), reals(right))])
                ]
            operands = [*point.operands[: len(point.operands) - count], *left]
            return reals(subject.push(operands, right)[1])

        with self._blaming(mode, point):
            wanted = [(each, np.abs(each)) for each in second(two, one)]
            names = ("the Hessian",) if mode == "vjp" else subject.results
            self._equal(
                "symmetry",
                "second derivative, with its directions exchanged,",
                names,
                second(one, two),
                wanted,
                point,
            )

    def batch(self, first: Point, second: Point) -> None:
        """Compare the rule for a batch of two points with the rule at each."""
        if self.order > 1:
            return
        mode = self.subject.modes[0]
        if mode in self.broken:
            return
        take = self.subject.push if mode == "jvp" else self.subject.pull
        batchable = self.subject.pushed if mode == "jvp" else self.subject.pulled
        like = self._mode(first, mode)[1]
        directions = [self.draw.numbers(x, signed=True) for x in like]
        moved = self.subject.moved
        axes = [0 if i in moved else None for i in range(len(first.operands))]
        stacked = [
            jnp.stack([a, b]) if i in moved else a
            for i, (a, b) in enumerate(zip(first.operands, second.operands, strict=True))
        ]
        tally = self.tally("batch")
        try:
            batched = _batched(batchable, axes)(stacked, directions)[1]
        except Exception as error:
            tally.skip(f"the rule cannot be batched: {headline(error)}")
            return
        for n, point in enumerate((first, second)):
            expected = reals(take(point.operands, directions)[1])
            pairs = [(each, np.abs(each)) for each in expected]
            found = reals([each[n] for each in batched])
            names = tuple(f"{n}" for n in range(len(found)))
            self._equal("batch", f"{mode} of item {n} of a batch", names, found, pairs, point)


def _batched(function: Callable[..., Any], axes: list[int | None]) -> Callable[..., Any]:
    """Return the function of batched operands and of directions, by our pass if JAX has no way."""

    def batched(operands: Any, directions: Any) -> Any:
        try:
            return compiled(jax.vmap(function, (axes, None)))(operands, directions)
        except NotImplementedError:  # as of a linear_call
            return compiled(pullback.vmap(function, (axes, None)))(operands, directions)

    return batched


SMALL_PART = 1e-2


def _largest(values: np.ndarray) -> float:
    finite = np.abs(values[np.isfinite(values)])
    return float(finite.max(initial=0.0))


def _known(measured: list[Measured], k: int) -> Any:
    """Return where a result has slopes in all directions: elsewhere, a rule may give anything."""
    return np.all([_is_known(slopes[k]) for *_, slopes in measured], axis=0)


def _measure(value: float, error: float) -> str:
    """Return a number with its error, if that is not lost in the digits shown."""
    is_lost = error <= 1e-6 * abs(value) or error < 1e-12
    return f"{value:.6g}" if is_lost else f"{value:.6g} ± {error:.1g}"


def _is_ambiguous(tangent: Any, slope: Slope, rule: np.ndarray) -> bool:
    """Return True at a kink of several elements: one may bend each way, and no slope tells."""
    is_one = np.count_nonzero(tangent) <= 1
    return not is_one and bool(np.any(slope.bends)) and bool(np.all(np.isfinite(rule)))


def _unknown(slope: Slope, operand: Any) -> str:
    """Return why nothing is compared with a slope."""
    if not np.any(np.isposinf(slope.grain)):
        return "the function has no slope there that can be told"
    wider = "" if jnp.finfo(operand.dtype).bits == 64 else " in 64 bits, or"
    return (
        f"the function is not resolved by {operand.dtype.name} near this point: check it{wider} at "
        "smaller values"
    )


def _is_known(slope: Slope) -> np.ndarray:
    return np.isfinite(slope.value) & np.isfinite(slope.error)


def _along(ct: np.ndarray, slope: Slope) -> tuple[Slope, float]:
    """Return the slope of the inner product with a cotangent, and the size of its summands."""
    used = (ct != 0) & _is_known(slope)

    def total(values: np.ndarray) -> np.ndarray:
        return np.asarray([np.sum(values, where=used)])

    with np.errstate(all="ignore"):
        value, weight = ct * slope.value, np.abs(ct)
        ends = ct * slope.low, ct * slope.high
        whole = Slope(
            total(value),
            total(weight * slope.error),
            total(np.fmin(*ends)),
            total(np.fmax(*ends)),
            np.asarray([np.any(slope.bends)]),
            total(weight * slope.unsteady),
            total(weight * slope.grain),
        )
        return whole, float(total(np.abs(value))[0])
