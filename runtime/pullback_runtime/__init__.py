"""Run StableHLO modules on XLA: compile one, call it, or make it a JAX function."""

from pullback_runtime._backend import (
    backends as backends,
    default_backend as default_backend,
    devices as devices,
)
from pullback_runtime._callable import make_callable as make_callable
from pullback_runtime._compile import clear_cache as clear_cache, compile as compile
from pullback_runtime._container import ArtifactError as ArtifactError
from pullback_runtime._convention import Convention as Convention
from pullback_runtime._errors import (
    ArgumentError as ArgumentError,
    BackendNotFoundError as BackendNotFoundError,
    CompileError as CompileError,
    DimensionError as DimensionError,
    ErasureError as ErasureError,
    MissingTransformError as MissingTransformError,
    ModuleError as ModuleError,
    PullbackRuntimeError as PullbackRuntimeError,
)
from pullback_runtime._executable import Executable as Executable, Memory as Memory
from pullback_runtime._handle import (
    ModuleHandle as ModuleHandle,
    lazy_handle as lazy_handle,
    make_handle as make_handle,
)
from pullback_runtime._interpret import run_interpreted as run_interpreted
from pullback_runtime._load import LoadedProgram as LoadedProgram, load as load
from pullback_runtime._primitive import (
    SplitJVP as SplitJVP,
    call_module as call_module,
    set_rules as set_rules,
)
from pullback_runtime._version import __version__ as __version__

__all__ = [
    "ArgumentError",
    "ArtifactError",
    "BackendNotFoundError",
    "CompileError",
    "Convention",
    "DimensionError",
    "ErasureError",
    "Executable",
    "LoadedProgram",
    "Memory",
    "MissingTransformError",
    "ModuleError",
    "ModuleHandle",
    "PullbackRuntimeError",
    "SplitJVP",
    "__version__",
    "backends",
    "call_module",
    "clear_cache",
    "compile",
    "default_backend",
    "devices",
    "lazy_handle",
    "load",
    "make_callable",
    "make_handle",
    "run_interpreted",
    "set_rules",
]
