"""Run StableHLO modules: load a saved program, compile a module, or make it a JAX function.

Nothing here imports JAX before something is used that needs it.
"""

from typing import TYPE_CHECKING

from pullback_runtime._errors import (
    ArgumentError as ArgumentError,
    BackendNotFoundError as BackendNotFoundError,
    CompileError as CompileError,
    DimensionError as DimensionError,
    EngineNotFoundError as EngineNotFoundError,
    ErasureError as ErasureError,
    MissingTransformError as MissingTransformError,
    ModuleError as ModuleError,
    PullbackRuntimeError as PullbackRuntimeError,
)
from pullback_runtime._first_use import names as __dir__, with_jax as __getattr__  # noqa: F401
from pullback_runtime._open import (
    CompiledAgainWarning as CompiledAgainWarning,
    load as load,
    load_executable as load_executable,
    save_executable as save_executable,
)
from pullback_runtime._version import __version__ as __version__
from pullback_runtime.engine._engines import InstalledEngine as InstalledEngine, engines as engines
from pullback_runtime.files._container import ArtifactError as ArtifactError
from pullback_runtime.files._portable import PortableProgram as PortableProgram

if TYPE_CHECKING:
    from pullback_runtime._with_jax import (
        Convention as Convention,
        Executable as Executable,
        Halves as Halves,
        LoadedProgram as LoadedProgram,
        Memory as Memory,
        ModuleHandle as ModuleHandle,
        Transposed as Transposed,
        backends as backends,
        call_module as call_module,
        clear_cache as clear_cache,
        compile as compile,
        default_backend as default_backend,
        devices as devices,
        lazy_handle as lazy_handle,
        make_callable as make_callable,
        make_handle as make_handle,
        run_interpreted as run_interpreted,
        set_rules as set_rules,
    )

__all__ = [
    "ArgumentError",
    "ArtifactError",
    "BackendNotFoundError",
    "CompileError",
    "CompiledAgainWarning",
    "Convention",
    "DimensionError",
    "EngineNotFoundError",
    "ErasureError",
    "Executable",
    "Halves",
    "InstalledEngine",
    "LoadedProgram",
    "Memory",
    "MissingTransformError",
    "ModuleError",
    "ModuleHandle",
    "PortableProgram",
    "PullbackRuntimeError",
    "Transposed",
    "__version__",
    "backends",
    "call_module",
    "clear_cache",
    "compile",
    "default_backend",
    "devices",
    "engines",
    "lazy_handle",
    "load",
    "load_executable",
    "make_callable",
    "make_handle",
    "run_interpreted",
    "save_executable",
    "set_rules",
]
