"""Run StableHLO modules on XLA: compile one, call it, or make it a JAX function."""

from pullback_runtime._backend import backends as backends
from pullback_runtime._backend import devices as devices
from pullback_runtime._callable import make_callable as make_callable
from pullback_runtime._compile import clear_cache as clear_cache
from pullback_runtime._compile import compile as compile
from pullback_runtime._container import ArtifactError as ArtifactError
from pullback_runtime._convention import Convention as Convention
from pullback_runtime._errors import ArgumentError as ArgumentError
from pullback_runtime._errors import BackendNotFoundError as BackendNotFoundError
from pullback_runtime._errors import CompileError as CompileError
from pullback_runtime._errors import MissingTransformError as MissingTransformError
from pullback_runtime._errors import ModuleError as ModuleError
from pullback_runtime._errors import PullbackRuntimeError as PullbackRuntimeError
from pullback_runtime._executable import Executable as Executable
from pullback_runtime._executable import Memory as Memory
from pullback_runtime._interpret import run_interpreted as run_interpreted
from pullback_runtime._load import LoadedProgram as LoadedProgram
from pullback_runtime._load import load as load
from pullback_runtime._primitive import ModuleHandle as ModuleHandle
from pullback_runtime._primitive import SplitJVP as SplitJVP
from pullback_runtime._primitive import call_module as call_module
from pullback_runtime._primitive import lazy_handle as lazy_handle
from pullback_runtime._primitive import make_handle as make_handle
from pullback_runtime._primitive import set_rules as set_rules
