"""Compile a module for a backend, or ahead of time for absent hardware; cached in process."""

from __future__ import annotations

import hashlib
import threading
import weakref
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax.sharding import Mesh

from pullback_runtime import _jax
from pullback_runtime._errors import ArgumentError, CompileError
from pullback_runtime._lazy_values import Recent
from pullback_runtime.call import _backend
from pullback_runtime.call._arguments import argument_name
from pullback_runtime.call._convention import CACHE_SIZE, Callee, Convention
from pullback_runtime.call._executable import Executable, not_here
from pullback_runtime.call._handle import ModuleHandle, make_handle
from pullback_runtime.call._jax_arguments import check_sixty_four_bits
from pullback_runtime.call._primitive import SHARED
from pullback_runtime.call._topology import topology_device
from pullback_runtime.ir import _module

_EXECUTABLES = Recent(CACHE_SIZE)
_CONVENTIONS: weakref.WeakSet[Convention] = weakref.WeakSet()
_LOCK = threading.Lock()


@dataclass(frozen=True)
class CompileOptions:
    """Everything but the module that makes one executable differ from another."""

    device: jax.Device | None
    donate_argnums: tuple[int, ...]
    topology: str | None
    arg_names: tuple[str, ...] | None
    entry: str
    host_callbacks: tuple[Callable[..., Any], ...]
    convention: Convention | None
    mesh: Mesh | None


def compile(
    module: Any,
    *,
    backend: str | None = None,
    device: jax.Device | int | None = None,
    donate_argnums: int | Sequence[int] = (),
    topology: str | None = None,
    arg_names: Sequence[str] | None = None,
    entry: str = "main",
    host_callbacks: Sequence[Callable[..., Any]] = (),
    keepalives: Sequence[Any] = (),
    convention: Convention | None = None,
    mesh: Mesh | None = None,
) -> Executable:
    """Compile a StableHLO module to an `Executable`.

    Args:
      module: an MLIR module, its text or bytecode, a StableHLO portable artifact, or a path; it is
        not changed.
      backend: 'cpu', 'cuda', 'rocm' or 'tpu'. Without it and `device`, calls run where their
        arguments are.
      device: one of the devices of the backend, or its index.
      donate_argnums: flat arguments whose buffers the results may take.
      topology: such as "v5e:2x2", to compile for a TPU that is not here.
      arg_names: names or paths of the flat arguments, for errors.
      entry: the function to call.
      host_callbacks: the Python functions that the module's callback ops number.
      keepalives: objects that must outlive the executable.
      convention: how the caller's own pytrees become flat arguments, and results pytrees.
      mesh: a module with `shard_map` or sharding constraints runs on its devices.

    Returns:
      An executable of flat arrays, or of pytrees with a `convention`; the same one for the same
      bytes and options.

    Raises:
      BackendNotFoundError: the backend, device or topology is not here.
      ModuleError: the module cannot be read or called: tokens, dynamic shapes, no such function.
      CompileError: XLA rejects it, or nothing is registered for a custom call in it.
    """
    if topology is not None:
        _check_absent(topology, backend, device)
    if mesh is not None:
        _check_whole(mesh, device, topology)
    options = CompileOptions(
        device=None if topology or mesh else _backend.pick_device(backend, device),
        donate_argnums=(donate_argnums,) if isinstance(donate_argnums, int) else (*donate_argnums,),
        topology=topology,
        arg_names=None if arg_names is None else tuple(arg_names),
        entry=entry,
        host_callbacks=tuple(host_callbacks),
        convention=convention,
        mesh=mesh,
    )
    content = _module.read(module)
    key = hashlib.sha256(content).digest(), options
    return _kept(convention, key, lambda: _build(content, options, keepalives))


def compile_call(callee: Callee, convention: Convention) -> Executable:
    """Compile a callee, under this convention, for where JAX runs its calls.

    These need not compile afterwards, and it is compiled already where one was called before.

    Raises: CompileError if XLA rejects the module.
    """

    def build() -> Executable:
        check_sixty_four_bits(callee.handle)
        return _executable(callee, None)

    return _kept(convention, callee, build)


def _kept(
    convention: Convention | None, key: Hashable, build: Callable[[], Executable]
) -> Executable:
    # What has a convention goes with it: nothing else can request it, and it may hold a model.
    if convention is None:
        executables = _EXECUTABLES
    else:
        executables = convention.executables
        with _LOCK:
            _CONVENTIONS.add(convention)
    key = key, jax.config.jax_default_device, _jax.get_concrete_mesh()
    found: Executable | None = executables.get(key)
    return found or executables.keep(key, build())


def clear_cache() -> None:
    """Forget the executables of this process."""
    _EXECUTABLES.clear()
    SHARED.clear()
    with _LOCK:
        for convention in _CONVENTIONS:
            convention.executables.clear()


def _build(content: bytes, options: CompileOptions, keepalives: Sequence[Any]) -> Executable:
    handle = make_handle(
        content,
        entry=options.entry,
        arg_names=options.arg_names,
        host_callbacks=options.host_callbacks,
        keepalives=keepalives,
    )
    check_sixty_four_bits(handle)
    if options.convention is None:
        _check_donated(handle, options.donate_argnums)
    callee = Callee(handle, options.donate_argnums, options.convention, options.mesh)
    if options.topology:
        device = topology_device(options.topology)
        compiled = _compile_ahead(callee, device)
        return Executable(handle, not_here(options.topology), compiled, (device,))
    return _executable(callee, options.device)


def _executable(callee: Callee, device: jax.Device | None) -> Executable:
    compiled = _compile_ahead(callee, device)
    devices = compiled.runtime_executable().local_devices()
    return Executable(callee.handle, callee.callable(device), compiled, tuple(devices))


def _compile_ahead(callee: Callee, device: jax.Device | None) -> Any:
    try:
        return callee.compile_ahead(device)
    except _jax.XlaRuntimeError as error:
        raise CompileError(
            f"XLA does not compile @{callee.handle.entry}: {error}",
            where="in pullback_runtime.compile",
            do="look for an op this backend lacks; run_interpreted needs no backend",
        ) from error


def _check_absent(topology: str, backend: str | None, device: jax.Device | int | None) -> None:
    if backend in (None, "tpu") and device is None:
        return
    raise ArgumentError(
        "topology= compiles for a TPU that is not here; backend= and device= name what is",
        where=f"compile(topology={topology!r}, backend={backend!r}, device={device!r})",
        do="give one or the other",
    )


def _check_whole(mesh: Mesh, device: jax.Device | int | None, topology: str | None) -> None:
    if device is None and topology is None:
        return
    raise ArgumentError(
        "the program runs on all devices of a mesh",
        where=f"compile(device={device!r}, topology={topology!r}, mesh={mesh})",
        do="leave out device= and topology=",
    )


def _check_donated(handle: ModuleHandle, donated: tuple[int, ...]) -> None:
    for index in donated:
        if not 0 <= index < len(handle.in_avals):
            raise ArgumentError(
                f"cannot donate {argument_name(handle.arg_names, index)}: "
                f"@{handle.entry} takes {len(handle.in_avals)} arguments",
                where=f"compile(donate_argnums={donated})",
                do="count flat arguments from 0",
            )
