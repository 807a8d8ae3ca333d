"""A module to call as a value: where its bytecode comes from, its signature and its identity."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pullback_runtime import _jax
from pullback_runtime.call._callbacks import check_callbacks, has_side_effects
from pullback_runtime.ir._module import PULLBACK_COMPOSITES, Aval, prepare, read


@dataclass(frozen=True, eq=False)
class ModuleHandle:
    """A module to call: where its bytecode comes from, its signature, and its identity.

    Two handles are equal when their keys are. `load` returns the bytecode and is called only when
    a call is lowered, so a transform that is never run costs nothing.
    """

    key: Hashable
    load: Callable[[], bytes]
    in_avals: tuple[Aval, ...]
    out_avals: tuple[Aval, ...]
    entry: str = "main"
    arg_names: tuple[str, ...] | None = None
    host_callbacks: Sequence[Callable[..., Any]] = ()
    keepalives: Sequence[Any] = field(default=(), repr=False)
    pure: bool = False  # whether the callbacks may be dropped, repeated and recomputed
    debugs: bool = False  # whether they may be repeated, and no more
    source: bytes | None = field(default=None, repr=False)  # the module with its derivative rules
    platforms: tuple[str, ...] = ()  # what the module is for; all, where none is named
    elsewhere: Callable[[str], ModuleHandle | None] | None = field(default=None, repr=False)
    on_host: tuple[int, ...] = ()  # results in the memory of the host
    digest: Callable[[], bytes | None] | None = None  # of the module without locations, if small
    lost_checks: bool = False  # whether it was traced without the `debug_check`s of its function
    shared: dict[str, Any] = field(default_factory=dict, init=False, repr=False)  # by platform

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ModuleHandle) and self.key == other.key

    def __repr__(self) -> str:
        return f"ModuleHandle(@{self.entry}, {len(self.in_avals)} -> {len(self.out_avals)})"


def make_handle(
    module: Any,
    *,
    entry: str = "main",
    arg_names: Sequence[str] | None = None,
    host_callbacks: Sequence[Callable[..., Any]] = (),
    keepalives: Sequence[Any] = (),
) -> ModuleHandle:
    """Return the handle of a module in any form `compile` reads, identified by its content."""
    content = read(module)
    prepared = prepare(content, entry)
    callbacks = tuple(host_callbacks)
    check_callbacks(prepared.bytecode, len(callbacks), keepalives)
    # Modules that compute the same by other derivative rules are different functions to JAX.
    identified = content if PULLBACK_COMPOSITES.encode() in content else prepared.bytecode
    return ModuleHandle(
        key=(hashlib.sha256(identified).digest(), prepared.entry, callbacks),
        load=lambda: prepared.bytecode,
        in_avals=prepared.in_avals,
        out_avals=prepared.out_avals,
        entry=prepared.entry,
        arg_names=None if arg_names is None else tuple(arg_names),
        host_callbacks=callbacks,
        keepalives=tuple(keepalives),
        pure=not has_side_effects(prepared.bytecode),
        source=content,
        on_host=prepared.on_host,
        lost_checks=LOST_CHECKS.encode() in content,
    )


def lazy_handle(
    key: Hashable,
    make_module: Callable[[], Any],
    in_avals: Sequence[Aval],
    out_avals: Sequence[Aval],
    *,
    entry: str = "main",
) -> ModuleHandle:
    """Return the handle of a module that is built when a call of it is first lowered, if ever.

    A rule returns one for a linear map that JAX needs only in order to transpose it. `key` says
    which module it will be: equal keys mean the same module.
    """
    load = functools.cache(lambda: prepare(read(make_module()), entry).bytecode)
    return ModuleHandle(key, load, tuple(in_avals), tuple(out_avals), entry)


LOST_CHECKS = "pullback.lost_checks"
"""Module attribute: a function of the module had a `checkify.debug_check`, which is not in it."""

_jax.hold_weakly(ModuleHandle)  # and with it a module, and all that its rules close over
