"""Every function of `jax.scipy.special` and `jax.scipy.stats`, with inputs in its domain.

The functions are found by looking at JAX; one that has no inputs here fails the tests.
"""

from __future__ import annotations

import fnmatch
import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.scipy.special as special
import jax.scipy.stats as stats
import numpy as np

from tests.conformance.comparison import BOTH_REFUSE, DIFFERS, ONLY_JAX_REFUSES
from tests.conformance.exceptions import Known
from tests.conformance.harnesses import Case

REAL, POSITIVE, UNIT = (-1.3, 0.4, 2.2), (0.7, 1.6, 3.3), (0.2, 0.5, 0.85)
MORE, COUNT = (1.4, 2.5, 4.1), (1.0, 2.0, 4.0)
LOC, SCALE = (0.1, -0.2, 0.3), (0.8, 1.5, 2.5)

SPECIAL = {
    "beta": (POSITIVE, MORE),
    "betainc": (POSITIVE, MORE, UNIT),
    "betaln": (POSITIVE, MORE),
    "boxcox": (POSITIVE, REAL),
    "boxcox1p": (POSITIVE, REAL),
    "comb": ((5.5, 6.2, 7.0), MORE),
    "dawsn": (REAL,),
    "digamma": (POSITIVE,),
    "entr": (POSITIVE,),
    "erf": (REAL,),
    "erfc": (REAL,),
    "erfcinv": (UNIT,),
    "erfcx": (REAL,),
    "erfinv": (UNIT,),
    "exp1": (POSITIVE,),
    "expi": (POSITIVE,),
    "expit": (REAL,),
    "expn": (COUNT, POSITIVE),
    "factorial": (POSITIVE,),
    "fresnel": (REAL,),
    "gamma": (POSITIVE,),
    "gammainc": (POSITIVE, MORE),
    "gammaincc": (POSITIVE, MORE),
    "gammaln": (POSITIVE,),
    "gammasgn": (REAL,),
    "hyp1f1": (POSITIVE, MORE, UNIT),
    "hyp2f1": (POSITIVE, UNIT, MORE, (0.1, 0.3, 0.45)),
    "i0": (REAL,),
    "i0e": (REAL,),
    "i1": (REAL,),
    "i1e": (REAL,),
    "kl_div": (POSITIVE, MORE),
    "log_ndtr": (REAL,),
    "log_softmax": (REAL,),
    "loggamma": (POSITIVE,),
    "logit": (UNIT,),
    "logsumexp": (REAL,),
    "ndtr": (REAL,),
    "ndtri": (UNIT,),
    "owens_t": (REAL, POSITIVE),
    "poch": (POSITIVE, MORE),
    "polygamma": ((1, 2, 4), POSITIVE),
    "rel_entr": (POSITIVE, MORE),
    "sici": (POSITIVE,),
    "softmax": (REAL,),
    "spence": (POSITIVE,),
    "xlog1py": (POSITIVE, MORE),
    "xlogy": (POSITIVE, MORE),
    "zeta": (MORE, POSITIVE),
}
DISTRIBUTIONS = {
    "bernoulli": ((0.0, 1.0, 1.0), UNIT, (0.0, 0.0, 0.0)),
    "beta": (UNIT, POSITIVE, MORE, (0.05, -0.1, 0.1), SCALE),
    "betabinom": (COUNT, (3.0, 5.0, 6.0), POSITIVE, MORE, (0.0, 0.0, 0.0)),
    "binom": (COUNT, (3.0, 5.0, 6.0), UNIT, (0.0, 0.0, 0.0)),
    "cauchy": (REAL, LOC, SCALE),
    "chi2": (POSITIVE, MORE, LOC, SCALE),
    "dirichlet": ((0.2, 0.3, 0.5), POSITIVE),
    "expon": (POSITIVE, LOC, SCALE),
    "gamma": (POSITIVE, MORE, LOC, SCALE),
    "gennorm": (REAL, MORE),
    "geom": (COUNT, UNIT, (0.0, 0.0, 0.0)),
    "gumbel_l": (REAL, LOC, SCALE),
    "gumbel_r": (REAL, LOC, SCALE),
    "laplace": (REAL, LOC, SCALE),
    "logistic": (REAL, LOC, SCALE),
    "multinomial": ((1, 2, 4), 7, (0.2, 0.3, 0.5)),
    "multivariate_normal": (REAL, LOC, ((2.0, 0.3, 0.1), (0.3, 1.5, 0.2), (0.1, 0.2, 1.0))),
    "nbinom": (COUNT, MORE, UNIT, (0.0, 0.0, 0.0)),
    "norm": (REAL, LOC, SCALE),
    "pareto": ((1.9, 2.4, 3.7), POSITIVE, LOC, (0.8, 1.1, 1.3)),
    "poisson": (COUNT, POSITIVE, (0.0, 0.0, 0.0)),
    "t": (REAL, MORE, LOC, SCALE),
    "truncnorm": (UNIT, (-1.0, -0.7, -2.0), MORE, LOC, SCALE),
    "uniform": (UNIT, (-0.1, -0.2, -0.3), SCALE),
    "vonmises": (REAL, POSITIVE),
    "wrapcauchy": (POSITIVE, UNIT),
}
"""Of each distribution: a point, and its parameters. An inverse has a probability as its point."""

CALLS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "bernoulli": (lambda: special.bernoulli(6), ()),
    "bessel_jn": (lambda z: special.bessel_jn(z, v=2, n_iter=6), ((1.1, 1.6, 2.3),)),
    "multigammaln": (lambda a: special.multigammaln(a, 2), (MORE,)),
    "wofz": (lambda re, im: special.wofz(jax.lax.complex(re, im)), (REAL, POSITIVE)),
    "sph_harm_y": (
        lambda theta, phi: special.sph_harm_y(
            np.array([2]), np.array([1]), theta[:1], phi[:1], n_max=3
        ),
        (POSITIVE, REAL),
    ),
    "gaussian_kde": (lambda data, x: stats.gaussian_kde(data)(x), (REAL, LOC)),
    "mode": (lambda a: tuple(stats.mode(a)), ((1.0, 2.0, 2.0),)),
    "rankdata": (stats.rankdata, (REAL,)),
    "sem": (stats.sem, (REAL,)),
    "poisson.entropy": (stats.poisson.entropy, (POSITIVE, (0.0, 0.0, 0.0))),
}
"""Those that take other arguments than arrays in the order of the tables."""

WITHOUT = (
    ("betainc", (0, 1), "gradient with respect to a and b not supported"),
    ("beta.*[cs]*f", (1, 2), "gradient with respect to a and b not supported"),
    ("gumbel_?.*pdf", (2,), "float0"),
    ("gumbel_?.ppf", (0,), "float0"),
)
"""Arguments by which JAX differentiates no function of these names, and its words."""

_NO_SECOND = "JAX has no second derivative by the order of an incomplete gamma function"
KNOWN = tuple(
    Known(names, ("second",), BOTH_REFUSE, "'igamma_grad_a' not implemented", _NO_SECOND)
    for names in ("gammainc*", "chi2.*[cs][df]*", "gamma.*[cs][df]*", "gennorm.cdf")
) + (
    Known(
        "bessel_jn",
        ("second",),
        DIFFERS,
        "e-06 of",
        "The recurrence cancels in float32, where both round in another order",
    ),
    *(
        Known(
            name,
            ("second",),
            ONLY_JAX_REFUSES,
            "No constant handler",
            "JAX's rule holds a value of a trace that is over, up to jax 0.10",
        )
        for name in ("exp1", "expn")
    ),
    Known("erfcx", ("second",), BOTH_REFUSE, "select cases", "JAX's rule is not differentiable"),
    Known(
        "spence",
        ("vjp", "second"),
        DIFFERS,
        "0 of 3 not finite instead of 1 of 3",
        "JAX's reverse mode has NaN from what a select does not take, and its forward mode has not",
    ),
)
"""The known differences, as in `exceptions`, and where neither has a derivative."""


def public(module: Any) -> dict[str, Any]:
    """The public functions and classes of a module."""
    named = {name: getattr(module, name) for name in dir(module) if not name.startswith("_")}
    return {name: value for name, value in named.items() if callable(value)}


def functions() -> dict[str, Any]:
    """All that JAX has, by name: `gammaln`, `norm.logpdf`."""
    modules = {name: module for name, module in vars(stats).items() if inspect.ismodule(module)}
    found = public(special) | public(stats)
    for name, module in modules.items():
        if not name.startswith("_"):
            found |= {f"{name}.{each}": value for each, value in public(module).items()}
    return found


def call(name: str) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A function of arrays of floats, and numbers for these."""
    if name in CALLS:
        return CALLS[name]
    function = functions()[name]
    distribution, _, method = name.rpartition(".")
    if not distribution:
        return function, SPECIAL[name]
    args = DISTRIBUTIONS[distribution][: len(inspect.signature(function).parameters)]
    return function, (UNIT, *args[1:]) if method in ("ppf", "isf") else args


def arrays(numbers: tuple[Any, ...], dtype: str) -> list[np.ndarray]:
    """The numbers in a type of floats; integers are left as they are."""
    arrays = [np.asarray(each) for each in numbers]
    return [each.astype(dtype) if each.dtype == np.float64 else each for each in arrays]


def differentiated(name: str) -> list[int]:
    """The arguments by which JAX differentiates a function."""
    without = {i for names, where, _ in WITHOUT for i in where if fnmatch.fnmatchcase(name, names)}
    values = arrays(call(name)[1], "float32")
    return [i for i, x in enumerate(values) if x.dtype == np.float32 and i not in without]


def case(name: str, dtype: str) -> Case:
    """The function of those arguments by which JAX differentiates it; the others are fixed."""
    function, numbers = call(name)
    chosen = differentiated(name)

    def of_chosen(*args: Any) -> Any:
        full: list[Any] = arrays(numbers, dtype)
        for i, arg in zip(chosen, args, strict=True):
            full[i] = arg
        return function(*full)

    def make() -> tuple[Any, ...]:
        return tuple(arrays(numbers, dtype)[i] for i in chosen)

    return Case(f"{name}_{dtype}", name, of_chosen, make)
