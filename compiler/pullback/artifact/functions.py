"""JAX's functions that `jax.export` writes under their own names, found again, with their rules.

`jax.nn.relu` is a function `@relu` of a maximum there, whose derivative at 0 is 1/2, where JAX has
0. A sample of `jax.random.gamma` is what the loop in `@_gamma` accepts. JAX is asked for these
again, for arguments of the same types; a function that is the same is replaced by JAX's, with its
rules. So is one that another version of JAX wrote in another way, if it has the same values. One
that somebody wrote under that name, which has a line of theirs, stays what it is.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import export, lax
from jax.scipy import special

from pullback import _jax, _locations
from pullback._jax import ir
from pullback.artifact import high_level, samplers
from pullback.artifact.sampled_values import agree
from pullback.dialect import build
from pullback.frontend import link
from pullback.frontend.trace import trace
from pullback.passes.stock import run_stock
from pullback.passes.symbols import CALL, callee, erase_unreachable, functions, text_of
from pullback_runtime import _module
from pullback_runtime._elements import element_dtype
from pullback_runtime._jax import operations_named, operations_where

Function = Callable[..., Any]
Types = Sequence[jax.ShapeDtypeStruct]
Candidates = Callable[[str, Types, Types], Iterator[Function]]
"""What a function may be, by the platform and the types of its arguments and results."""

_BOTH = (False, True)


def _batches(*choices: Function) -> Candidates:
    """One of these functions, or of their batches along the first axes of all that have any."""

    def candidates(platform: str, given: Types, results: Types) -> Iterator[Function]:
        for function in choices:
            yield function
            for depth in range(1, 1 + max((len(t.shape) for t in given), default=0)):
                axes = tuple(0 if len(t.shape) >= depth else None for t in given)
                function = jax.vmap(function, axes)
                yield function

    return candidates


def _svd(platform: str, given: Types, results: Types) -> Iterator[Function]:
    """On other platforms than TPUs it is a call of a library, which is found as such."""
    for full_matrices in _BOTH if platform == "tpu" else ():
        svd = functools.partial(lax.linalg.svd, full_matrices=full_matrices)
        yield functools.partial(svd, compute_uv=len(results) > 1)


FUNCTIONS: dict[str, Candidates] = {
    "_gamma": samplers.candidates,
    "_pinv": _batches(*(functools.partial(jnp.linalg.pinv, hermitian=is_so) for is_so in _BOTH)),
    "det": _batches(jnp.linalg.det),
    "expi": _batches(special.expi),
    "hyp1f1": _batches(special.hyp1f1),
    "hyp2f1": _batches(special.hyp2f1),
    "i0": _batches(jnp.i0),
    "log1mexp": _batches(jax.nn.log1mexp),
    "relu": _batches(jax.nn.relu),
    "relu6": _batches(jax.nn.relu6),
    "sici": _batches(special.sici),
    "sinc": _batches(jnp.sinc),
    "slogdet": _batches(jnp.linalg.slogdet),
    "svd": _svd,
}
"""Those whose derivatives are not those of the formulas that they are written as."""

BY_BODY_ALONE = frozenset({"relu", "relu6", "svd"})
"""Those whose values do not tell the derivative at a kink, or the factors."""

_NAME = re.compile(rf"({'|'.join(FUNCTIONS)})(_\d+)?")
_SYMBOL = re.compile(r"@([\w.$]+)")
_WIDE = ("float64", "complex128", "int64", "uint64")
_CANONICAL = "canonicalize,cse,strip-debuginfo"


def put_back(module: ir.Module, platform: str) -> None:
    """Puts functions with rules in the place of those without, in place."""
    table, found = functions(module), dict[str, str]()
    calls = operations_named(module, CALL)  # not those of what is put there
    for name in table:
        if (source := _new(module, table[name], name, platform)) is not None:
            found[name] = link.merge_main(module, source, table[name])
    for call in calls if found else ():
        if (new := found.get(callee(call))) is not None:
            call.attributes["callee"] = ir.FlatSymbolRefAttr.get(new, module.context)
    if found:
        erase_unreachable(module)


def _new(module: ir.Module, function: Any, name: str, platform: str) -> bytes | None:
    """The module of the same function with its rules, if it is JAX's."""
    if (named := _NAME.fullmatch(name)) is None or _is_of_a_user(function):
        return None
    kind = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
    given, results = (arguments(each) for each in (kind.inputs, kind.results))
    if given is None or results is None:
        return None
    alone, entry = _alone(module, name)
    question = named[1], platform, given, results
    found = _again(*question, _fingerprint(alone, entry))
    if found is None and named[1] not in BY_BODY_ALONE:
        found = _of_the_same_values(*question, _module.to_bytecode(alone), entry)
    return found


def arguments(types: Iterable[ir.Type]) -> Types | None:
    """What JAX is asked with for arguments of these types; None where it has none of one."""
    found = [build.info(t) for t in types]
    if any(t.kind == "?" or -1 in t.shape for t in found):
        return None
    return tuple(
        jax.ShapeDtypeStruct(t.shape, element_dtype(t.element, "a function of JAX")) for t in found
    )


def with_rules(function: Function, platform: str, given: Types) -> bytes:
    """The module of a function of JAX, with all rules in it."""
    return _module.to_bytecode(trace(function, platforms=platform)(*given).stage_rules().module)


def _is_of_a_user(function: Any) -> bool:
    """Whether an op in it has a line: JAX does not write those of its own files."""
    inside = operations_where(function, lambda op: _locations.user_frame(op.location))
    return any(op != function.operation for op in inside)  # that is where it was called


def _alone(module: ir.Module, name: str) -> tuple[ir.Module, str]:
    """A function and those that it refers to, in a module of their own, and its name there."""
    with module.context, ir.Location.unknown():
        alone = ir.Module.create()
    entry = link.merge(alone, module, name)
    run_stock(alone, _CANONICAL)
    return alone, entry


def _fingerprint(alone: ir.Module, entry: str) -> str:
    """What functions are, but for their names and the lines."""
    names = [entry]
    table, numbers, texts = functions(alone), {names[0]: "@0"}, list[str]()
    for name in names:  # grows
        text = text_of(table[name])
        for other in _SYMBOL.findall(text):
            if other in table and other not in numbers:
                numbers[other] = f"@{len(numbers)}"
                names.append(other)
        texts.append(_SYMBOL.sub(lambda found: numbers.get(found[1], found[0]), text))
    return "\n".join(texts)


@functools.lru_cache(maxsize=256)
def _again(
    name: str, platform: str, given: Types, results: Types, fingerprint: str
) -> bytes | None:
    """The function of JAX that is this one, as a module with rules."""
    is_wide = any(t.dtype.name in _WIDE for t in (*given, *results))
    for function in FUNCTIONS[name](platform, given, results):
        for x64 in (True,) if is_wide else (True, False):
            for types in dict.fromkeys((given, tuple(map(_as_literal, given)))):
                with jax.enable_x64(x64), contextlib.suppress(Exception):  # JAX has none of these
                    for each in _of_results(function, types, len(results)):
                        if fingerprint in _fingerprints(each, platform, types):
                            return with_rules(each, platform, types)
    return None


@functools.lru_cache(maxsize=256)
def _of_the_same_values(
    name: str, platform: str, given: Types, results: Types, content: bytes, entry: str
) -> bytes | None:
    """The function of JAX whose values are those of @entry, as a module with rules."""
    with jax.enable_x64(any(t.dtype.name in _WIDE for t in (*given, *results))):
        for function in FUNCTIONS[name](platform, given, results):
            with contextlib.suppress(Exception):  # JAX has none of these, or it does not run here
                for each in _of_results(function, given, len(results)):
                    found = [(t.shape, t.dtype) for t in jax.eval_shape(each, *given)]
                    wanted = [(t.shape, t.dtype) for t in results]
                    if found == wanted and agree(content, entry, each, given, platform):
                        return with_rules(each, platform, given)
    return None


def _as_literal(t: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
    """A number that is written into Python code has a weak type."""
    return t if t.shape else jax.ShapeDtypeStruct(t.shape, t.dtype, weak_type=True)


def _of_results(function: Function, given: Types, count: int) -> Iterator[Function]:
    """The function with all its results, or as many of them: JAX drops those that nobody uses."""
    everything = range(len(jax.tree.leaves(jax.eval_shape(function, *given))))
    for chosen in itertools.combinations(everything, count):
        yield functools.partial(_chosen, function, chosen)


def _chosen(function: Function, chosen: tuple[int, ...], *args: Any) -> list[Any]:
    results = jax.tree.leaves(function(*args))
    return [results[i] for i in chosen]


def _fingerprints(function: Function, platform: str, given: Types) -> Iterator[str]:
    """What JAX exports of a function that is nothing but a call, and what it lowers to."""
    jitted = jax.jit(function)
    for text in (
        lambda: export.export(jitted, platforms=[platform])(*given).mlir_module(),
        lambda: jitted.trace(*given).lower(lowering_platforms=(platform,)).as_text(),
    ):
        module = ir.Module.parse(text(), context=_jax.context())
        high_level.restore(module)
        if (entry := _called_by_main(functions(module)["main"])) is not None:
            yield _fingerprint(*_alone(module, entry))


def _called_by_main(main: Any) -> str | None:
    """The function that an entry does nothing but call."""
    (block,) = main.regions[0].blocks
    call, *rest = block.operations
    if call.operation.name != CALL or len(rest) != 1:
        return None
    pairs = ((call.operands, block.arguments), (rest[0].operands, call.results))
    return callee(call.operation) if all(list(a) == list(b) for a, b in pairs) else None
