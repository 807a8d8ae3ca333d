"""Pick a backend and a device; say which are present, and what to install."""

from __future__ import annotations

from typing import Any

import jax

from pullback_runtime import _jax
from pullback_runtime._errors import BackendNotFoundError

INSTALL = {
    "cpu": "reinstall jaxlib: every jaxlib has the cpu backend (is JAX_PLATFORMS set?)",
    "cuda": 'pip install "jax[cuda13]" on a machine with an NVIDIA GPU and its driver',
    "rocm": 'pip install "jax[rocm7-local]" on a machine with an AMD GPU and ROCm',
    "tpu": 'pip install "jax[tpu]" on a TPU machine; without one, compile ahead of time with '
    'topology="v5e:2x2"',
}

# What JAX raises without devices; it asserts that one of the platforms it is told of is here.
JAX_HAS_NONE = (RuntimeError, AssertionError)


def backends() -> list[str]:
    """List the backends present, the default one first: 'cpu', 'cuda', 'rocm', 'tpu'."""
    default = platform_name(_devices_of_jax()[0])
    names = {platform_name(client.devices()[0]) for client in _jax.clients() if client.devices()}
    return sorted(names, key=lambda name: (name != default, name))


def default_backend() -> str:
    """Return the backend of `jax.default_device`, or else of JAX's first device."""
    chosen = jax.config.jax_default_device
    if isinstance(chosen, jax.Device):
        return platform_name(chosen)
    return platform_name(_devices_of_jax(chosen)[0])


def devices(backend: str | None = None) -> list[jax.Device]:
    """List the devices of a backend, by default those of the default backend."""
    if backend is None:
        return _devices_of_jax()
    if backend in INSTALL:
        try:
            return jax.devices(backend)
        except JAX_HAS_NONE as error:
            raise _not_found(backend) from error
    if backend in backends():
        return jax.devices(backend)
    raise _not_found(backend)


def _devices_of_jax(platform: str | None = None) -> list[jax.Device]:
    try:
        return jax.devices(platform)
    except JAX_HAS_NONE as error:
        raise BackendNotFoundError(
            f"JAX finds no device to run on: {str(error) or 'none of its platforms is here'}",
            where=f"jax_platforms={jax.config.jax_platforms!r}",
            do="name a platform that is here in JAX_PLATFORMS, such as cpu, or leave it unset",
        ) from error


def put_to_keep(arrays: Any, device: jax.Device | None = None, **options: Any) -> Any:
    """Put arrays on a device outside of any current trace, so that they may outlive it.

    Without arrays nothing is called: under `jax_debug_key_reuse`, JAX would recurse forever.
    """
    if not jax.tree.leaves(arrays):
        return arrays
    with jax.ensure_compile_time_eval():
        return jax.device_put(arrays, device, **options)


def pick_device(backend: str | None, device: jax.Device | int | None) -> jax.Device | None:
    """Return the device that these options select; None to leave the choice to JAX."""
    if device is None:
        return None if backend is None else devices(backend)[0]
    if isinstance(device, int):
        return _numbered(backend, device)
    if isinstance(device, str):
        raise BackendNotFoundError(
            f"{device!r} is neither a device nor the index of one",
            where=f"compile(device={device!r})",
            do="pick from pullback_runtime.devices()",
        )
    if backend is not None and platform_name(device) != platform_name(devices(backend)[0]):
        raise BackendNotFoundError(
            f"device {device} is not one of backend {backend!r}",
            where=f"compile(backend={backend!r}, device={device!r})",
            do=f"leave out backend, or pick from devices({backend!r})",
        )
    return device


def platform_of(backend: str | None, device: jax.Device | int | None) -> str:
    """Return the name of the backend that these options of `compile` select."""
    chosen = pick_device(backend, device)
    return default_backend() if chosen is None else platform_name(chosen)


def _numbered(backend: str | None, index: int) -> jax.Device:
    present = devices(backend)
    if 0 <= index < len(present):
        return present[index]
    name = backend or platform_name(present[0])
    raise BackendNotFoundError(
        f"no device {index} on backend {name!r}; present: 0 to {len(present) - 1}",
        where=f"compile(device={index})",
        do="pick from pullback_runtime.devices()",
    )


def platform_name(device: jax.Device) -> str:
    """Return a device's platform; the client's version tells 'cuda' from 'rocm' for JAX's 'gpu'."""
    if device.platform != "gpu":
        return device.platform
    return "rocm" if "rocm" in device.client.platform_version.lower() else "cuda"


def _not_found(name: str) -> BackendNotFoundError:
    present = ", ".join(repr(backend) for backend in backends())
    do = INSTALL.get(name, f"choose one of the known backends: {', '.join(INSTALL)}")
    return BackendNotFoundError(
        f"no backend {name!r}; present: {present}",
        where=f"backend={name!r}",
        do=do,
    )
