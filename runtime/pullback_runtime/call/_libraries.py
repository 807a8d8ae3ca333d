"""Custom calls of libraries that one platform alone has."""

from __future__ import annotations

from pullback_runtime._errors import ModuleError
from pullback_runtime._jax import operations_named, place
from pullback_runtime.ir import _module

PLATFORMS = {
    "lapack_": "cpu",
    "cusolver_": "cuda",
    "cusparse_": "cuda",
    "cublas_": "cuda",
    "cu_": "cuda",
    "hipsolver_": "rocm",
    "hipsparse_": "rocm",
    "hip_": "rocm",
}
"""The platform of each library, by the prefix of its custom calls."""

OF_TPUS = ("Eigh", "LuDecomposition", "ProductOfElementaryHouseholderReflectors", "Qr")
"""Custom calls of the TPU platform, by whole names."""

EXPANDED = frozenset(OF_TPUS) - {"LuDecomposition"}
"""Custom calls of TPUs that XLA expands to other ops, on platforms without such a routine."""

_MARKS = (*map(str.encode, PLATFORMS), *(name.encode() + bytes(1) for name in OF_TPUS))
"""A module in bytes without one of these has no such call: a string ends with 0, and `Qr` is short,
so that numbers would have it by chance."""


def home_of(target: str) -> str | None:
    """Return the one platform that has the library of a custom call; None for other calls."""
    if target in OF_TPUS:
        return "tpu"
    return next((PLATFORMS[each] for each in PLATFORMS if target.startswith(each)), None)


def check_libraries(content: bytes, made_for: tuple[str, ...], platform: str) -> None:
    """Raise ModuleError if a module calls a library that the platform does not have."""
    if not any(mark in content for mark in _MARKS):
        return
    module = _module.parse(content)  # ops do not keep it alive
    for call in operations_named(module, "stablehlo.custom_call"):
        target = call.attributes["call_target_name"].value
        home = home_of(target)
        if home not in (None, platform) and target not in EXPANDED:
            raise ModuleError(
                f"the program was lowered for {', '.join(made_for) or home}, and is to run on "
                f"{platform}, which has no `{target}`",
                where=place(call),
                do=f'run it on arrays of a {home} device, or trace it with platforms=("{home}", '
                f'"{platform}") and save that',
            )
