"""Derive everything about one case, evaluate it in one compiled module, and hand back the numbers.

The derived functions of a case are put in one module, so that XLA compiles once per case:
jvp, vjp, jvp of vjp, vjp of vjp, and the function and its vjp at two neighbouring points.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import pullback_runtime
from pullback import _jax
from pullback._jax import ir
from pullback.passes.manager import run_pipeline
from tests import folded
from tests.rules.record import Arg, Case

STEP = 1e-6
Arrays = list[np.ndarray]


def all_cases() -> list[Case]:
    """The records of cases.py and of every cases_*.py beside it."""
    files = sorted(Path(__file__).parent.glob("cases*.py"))
    return [case for f in files for case in importlib.import_module(f"tests.rules.{f.stem}").CASES]


# ----------------------------------------------------------------------------------- inputs


def inexact(x: np.ndarray) -> bool:
    return bool(jnp.issubdtype(x.dtype, jnp.inexact))


def sample(case: Case, rng: np.random.Generator) -> Arrays:
    return [a.sample(rng) if isinstance(a, Arg) else np.asarray(a) for a in case.args]


def direction(like: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A random tangent or cotangent."""
    v = rng.uniform(0.5, 1.5, like.shape) * rng.choice([-1.0, 1.0], like.shape)
    if jnp.issubdtype(like.dtype, jnp.complexfloating):
        v = v + 1j * rng.uniform(-1.5, 1.5, like.shape)
    return np.asarray(v, like.dtype)


def pairing(xs: Arrays, ys: Arrays) -> tuple[float, float]:
    """Re Σ x y without a conjugate, JAX's pairing of cotangents and tangents; and its scale."""
    total = sum(float(np.sum(x * y).real) for x, y in zip(xs, ys, strict=True))
    scale = sum(float(np.sum(np.abs(x * y))) for x, y in zip(xs, ys, strict=True))
    return total, scale


NAMES_IN_IR = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}
NAMES_IN_IR |= {"float8_e4m3fn": "f8E4M3FN"}


def narrowed(case: Case, args: Arrays, dtype: str) -> tuple[Case, Arrays]:
    """The case and its arguments in a narrower type; complex numbers have parts of 32 bits."""
    function = case.function
    if isinstance(function, str):
        dtype = "float32" if "complex" in function else dtype
        function = function.replace("f64", NAMES_IN_IR[dtype])
    return replace(case, function=function), [_narrow(x, dtype) for x in args]


def _narrow(x: np.ndarray, dtype: str) -> np.ndarray:
    if x.dtype == np.complex128:
        return x.astype(np.complex64)
    return x.astype(jnp.dtype(dtype)) if x.dtype == np.float64 else x


# ------------------------------------------------------------------------------------ IR


def lower(case: Case, args: Arrays) -> ir.Module:
    """The case's function as a module, without the keep step of our frontend."""
    text = case.function
    if not isinstance(text, str):
        text = jax.jit(text, keep_unused=True).lower(*args).as_text()
    assert case.op in text, f"the function of {case.name} holds no {case.op}:\n{text}"
    return ir.Module.parse(text, _jax.context())


def functions(module: ir.Module) -> dict[str, Any]:
    return {
        ir.StringAttr(f.attributes["sym_name"]).value: f.operation
        for f in module.body.operations
        if f.operation.name == "func.func"
    }


def copy_function(module: ir.Module, name: str) -> None:
    """@main under another name."""
    with _jax.context(), ir.Location.unknown():
        copy = functions(module)["main"].clone(ir.InsertionPoint(module.body))
        copy.attributes["sym_name"] = ir.StringAttr.get(name)
        copy.attributes["sym_visibility"] = ir.StringAttr.get("private")
        for attrs in ("arg_attrs", "res_attrs"):
            if attrs in copy.attributes:
                del copy.attributes[attrs]


DERIVED = {
    "f": "",
    "f_jvp": "jvp{entry=f_jvp}",
    "f_vjp": "vjp{entry=f_vjp}",
    "f_vjp_jvp": "vjp{entry=f_vjp_jvp},jvp{entry=f_vjp_jvp}",
    "f_vjp_vjp": "vjp{entry=f_vjp_vjp},vjp{entry=f_vjp_vjp}",
}


def derive(case: Case, args: Arrays) -> ir.Module:
    """The module with the functions of `DERIVED` beside @main; verified."""
    module = lower(case, args)
    wanted = {n: p for n, p in DERIVED.items() if case.second or n.count("_") < 2}
    for name in wanted:
        copy_function(module, name)
    run_pipeline(module, f"builtin.module({','.join(p for p in wanted.values() if p)})")
    assert module.operation.verify()
    return module


@dataclass
class Program:
    """The module of a case with an entry that calls all its derived functions."""

    calls: list[tuple[str, Arrays]]
    rewrite: Callable[[str], str]

    def run(self, module: ir.Module) -> list[Arrays]:
        """The results of every call, in order."""
        table, lines, results, values = functions(module), [], [], []
        arguments: Arrays = []
        types: list[str] = []
        for number, (name, args) in enumerate(self.calls):
            type = ir.FunctionType(ir.TypeAttr(table[name].attributes["function_type"]).value)
            inputs = [str(t) for t in type.inputs]
            outputs = [str(t) for t in type.results]
            names = ", ".join(f"%a{len(arguments) + i}" for i in range(len(args)))
            head = f"%r{number}:{len(outputs)} = " if outputs else ""
            lines.append(f"{head}call @{name}({names}) : {type}")
            assert len(inputs) == len(args), f"@{name} takes {len(inputs)}, not {len(args)}"
            arguments += args
            types += inputs
            results += outputs
            values += [f"%r{number}#{i}" for i in range(len(outputs))]
        signature = ", ".join(f"%a{i}: {t}" for i, t in enumerate(types))
        entry = (
            f"func.func public @main({signature}) -> ({', '.join(results)}) {{\n"
            + "\n".join(lines)
            + f"\nreturn {', '.join(values)} : {', '.join(results)}\n}}"
        )
        functions(module)["main"].erase()
        text = str(module).rstrip()
        assert text.endswith("}")
        flat = _execute(self.rewrite(text[:-1] + entry + "\n}"), arguments)
        flat = [np.asarray(v) for v in flat]
        counts = [
            len(ir.FunctionType(ir.TypeAttr(table[n].attributes["function_type"]).value).results)
            for n, _ in self.calls
        ]
        return [[flat.pop(0) for _ in range(count)] for count in counts]


def _execute(text: str, arguments: Arrays) -> list[Any]:
    handle = pullback_runtime.make_handle(text)
    function = functools.partial(pullback_runtime.call_module, handle)
    return list(folded.call(function, *arguments))


# ----------------------------------------------------------------------------- evaluation


@dataclass
class Numbers:
    """Everything that was computed about a case. `v`, `ct`… hold inexact positions only."""

    args: Arrays
    v: Arrays
    ct: Arrays
    dct: Arrays
    w_outs: Arrays
    w_cts: Arrays
    tangents: Arrays
    cotangents: Arrays
    difference: Arrays
    second_outs: Arrays
    second_cotangents: Arrays
    second_difference: Arrays
    twice: Arrays


def perturbed(xs: Arrays, vs: Arrays, step: float) -> Arrays:
    """x + step v, for the inexact xs."""
    rest = iter(vs)
    return [x + step * next(rest) if inexact(x) else x for x in xs]


def only_inexact(xs: Arrays) -> Arrays:
    return [x for x in xs if inexact(x)]


def output_shapes(module: ir.Module) -> Arrays:
    """Zeros of the types of @f's results."""
    type = ir.FunctionType(ir.TypeAttr(functions(module)["f"].attributes["function_type"]).value)
    return [_zeros(t) for t in type.results]


_DTYPES = {"f64": np.float64, "f32": np.float32, "i1": np.bool_, "i32": np.int32, "i64": np.int64}
_DTYPES |= {"complex<f64>": np.complex128, "complex<f32>": np.complex64, "ui32": np.uint32}
_DTYPES |= {"ui64": np.uint64, "i8": np.int8, "ui8": np.uint8}
_DTYPES |= {"f16": np.float16, "bf16": jnp.bfloat16}


def _zeros(type: Any) -> np.ndarray:
    ranked = ir.RankedTensorType(type)
    return np.zeros(tuple(ranked.shape), _DTYPES[str(ranked.element_type)])


def evaluate(case: Case, seed: int = 0) -> Numbers:
    """Derive, compile and run one case."""
    rng = np.random.default_rng(seed)
    args = sample(case, rng)
    module = derive(case, args)
    outs = output_shapes(module)
    v = [direction(x, rng) for x in only_inexact(args)]
    ct = [direction(y, rng) for y in only_inexact(outs)]
    dct = [direction(y, rng) for y in ct]
    w_outs = [direction(y, rng) for y in ct]
    w_cts = [direction(x, rng) for x in v]
    more, less = perturbed(args, v, STEP), perturbed(args, v, -STEP)
    calls = [("f_jvp", [*args, *v]), ("f_vjp", [*args, *ct]), ("f", more), ("f", less)]
    if case.second:
        ct_more = [c + STEP * d for c, d in zip(ct, dct, strict=True)]
        ct_less = [c - STEP * d for c, d in zip(ct, dct, strict=True)]
        calls += [
            ("f_vjp_jvp", [*args, *ct, *v, *dct]),
            ("f_vjp", [*more, *ct_more]),
            ("f_vjp", [*less, *ct_less]),
            ("f_vjp_vjp", [*args, *ct, *w_outs, *w_cts]),
        ]
    found = Program(calls, case.rewrite or (lambda text: text)).run(module)
    n, k = len(outs), len(ct)
    numbers = Numbers(
        args, v, ct, dct, w_outs, w_cts,
        tangents=found[0][n:],
        cotangents=found[1][n:],
        difference=_differences(only_inexact(found[2]), only_inexact(found[3])),
        second_outs=[], second_cotangents=[], second_difference=[], twice=[],
    )  # fmt: skip
    if case.second:
        tail = found[4][n + len(v) :]
        numbers.second_outs, numbers.second_cotangents = tail[:k], tail[k:]
        numbers.second_difference = _differences(found[5][n:], found[6][n:])
        numbers.twice = found[7][n + len(v) :]
    return numbers


def _differences(more: Arrays, less: Arrays) -> Arrays:
    return [(a - b) / (2 * STEP) for a, b in zip(more, less, strict=True)]


# -------------------------------------------------------------------------------- from JAX


def jax_numbers(case: Case, numbers: Numbers) -> tuple[Arrays, Arrays, Arrays]:
    """Tangents, cotangents, and the tangents of the cotangents, as JAX computes them."""
    args = numbers.args
    where = [i for i, x in enumerate(args) if inexact(x)]

    def f(*xs: Any) -> list[Any]:
        full = list(args)
        for i, x in zip(where, xs, strict=True):
            full[i] = x
        flat = jax.tree.leaves(case.jax_function(*full))
        return [y for y in flat if jnp.issubdtype(y.dtype, jnp.inexact)]

    def pulled(xs: Any, ct: Any) -> Any:
        return jax.vjp(f, *xs)[1](ct)

    def everything(xs: Any, v: Any, ct: Any, dct: Any) -> Any:
        tangents = jax.jvp(f, xs, v)[1]
        cotangents = pulled(xs, ct)
        second = jax.jvp(pulled, (xs, ct), (v, dct))[1] if case.second else ()
        return tangents, cotangents, second

    xs = tuple(args[i] for i in where)
    found = folded.call(everything, xs, tuple(numbers.v), list(numbers.ct), list(numbers.dct))
    return tuple([np.asarray(a) for a in part] for part in found)
