"""Samplers of gamma distributions that `jax.export` writes, with JAX's derivatives of samples.

A sample is what a loop accepts, and the derivative of that loop is another number than that of the
sample by its shape parameter, which JAX knows. The loop stands in a function of its own, `@_gamma`,
also where a beta, Dirichlet, Student's t or chi-squared distribution is sampled. JAX is asked for
this function again; one that is the same is replaced by JAX's, with its rules.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any

import jax
from jax import export

from pullback import _jax
from pullback._jax import ir
from pullback.artifact import high_level
from pullback.dialect import build
from pullback.frontend import link
from pullback.frontend.trace import trace
from pullback.passes.symbols import CALL, callee, erase_unreachable, functions, text_of
from pullback_runtime import _module
from pullback_runtime._elements import element_dtype
from pullback_runtime._jax import operations_named

NAME = re.compile(r"_gamma(_\d+)?")
IMPLEMENTATIONS = {2: ("threefry2x32",), 4: ("rbg", "unsafe_rbg")}
"""Of random keys, by how many words they have."""

Sampler = Callable[[Any, Any], Any]
"""Of the words of a key, and the shape parameter."""

_SYMBOL = re.compile(r"@([\w.$]+)")


def put_back(module: ir.Module, platform: str) -> bool:
    """Puts samplers with rules in the place of those without, in place; whether there were."""
    table, found = functions(module), dict[str, str]()
    for name in filter(NAME.fullmatch, table):
        if (source := _new(table, name, platform)) is not None:
            found[name] = link.merge_main(module, source)
    for call in operations_named(module, CALL) if found else ():
        if (new := found.get(callee(call))) is not None:
            call.attributes["callee"] = ir.FlatSymbolRefAttr.get(new, module.context)
    if found:
        erase_unreachable(module)
    return bool(found)


def _new(table: Any, name: str, platform: str) -> bytes | None:
    """The module of the same sampler with its rules, if JAX has it."""
    kind = ir.FunctionType(ir.TypeAttr(table[name].attributes["function_type"]).value)
    types = tuple(build.info(t) for t in (*kind.inputs, *kind.results))
    if len(types) != 3 or any(t.kind == "?" or -1 in t.shape for t in types):
        return None
    key, alpha, sample = (
        jax.ShapeDtypeStruct(t.shape, element_dtype(t.element, "a sampler")) for t in types
    )
    found = _samplers(platform, key, alpha, sample).get(_fingerprint(table, name))
    return found and _with_rules(found, platform, key, alpha)


@functools.lru_cache(maxsize=256)
def _samplers(platform: str, key: Any, alpha: Any, sample: Any) -> dict[str, Sampler]:
    """JAX's samplers of these types, by the function that each is in a module."""
    found: dict[str, Sampler] = {}
    for sampler in _of_types(key, alpha, sample):
        for x64 in (True, False):
            with jax.enable_x64(x64), contextlib.suppress(Exception):  # JAX has none of these types
                for text in _texts(sampler, platform, key, alpha):
                    module = ir.Module.parse(text, context=_jax.context())
                    high_level.restore(module)
                    table = functions(module)
                    names = filter(NAME.fullmatch, table)
                    found.update((_fingerprint(table, name), sampler) for name in names)
    return found


def _of_types(key: Any, alpha: Any, sample: Any) -> Iterator[Sampler]:
    """Samplers for one key, or for each of an array of them and one alpha for all, or for each."""
    *batch, words = key.shape or (0,)
    for implementation, sampler, axis in itertools.product(
        IMPLEMENTATIONS.get(words, ()),
        (jax.random.gamma, jax.random.loggamma),
        (0, None) if batch else (0,),
    ):
        shape = sample.shape[len(batch) :]
        one = functools.partial(_sample, sampler, implementation, shape, sample.dtype)
        yield functools.reduce(lambda f, _: jax.vmap(f, (0, axis)), batch, one)


def _sample(sampler: Any, implementation: str, shape: Any, dtype: Any, key: Any, alpha: Any) -> Any:
    return sampler(jax.random.wrap_key_data(key, impl=implementation), alpha, shape, dtype)


def _texts(sampler: Sampler, platform: str, *types: Any) -> Iterator[str]:
    """What JAX exports, and what it lowers to."""
    jitted = jax.jit(sampler)
    yield export.export(jitted, platforms=[platform])(*types).mlir_module()
    yield jitted.trace(*types).lower(lowering_platforms=(platform,)).as_text()


@functools.lru_cache(maxsize=256)
def _with_rules(sampler: Sampler, platform: str, *types: Any) -> bytes:
    with jax.enable_x64(True):
        program = trace(sampler, platforms=platform)(*types).stage_rules()
        return _module.to_bytecode(program.module)


def _fingerprint(table: Any, entry: str) -> str:
    """What a function and those that it refers to are, but for their names."""
    numbers, texts, names = {entry: "@0"}, list[str](), [entry]
    for name in names:  # grows
        text = text_of(table[name])
        for other in _SYMBOL.findall(text):
            if other in table and other not in numbers:
                numbers[other] = f"@{len(numbers)}"
                names.append(other)
        texts.append(_SYMBOL.sub(lambda found: numbers.get(found[1], found[0]), text))
    return "\n".join(texts)
