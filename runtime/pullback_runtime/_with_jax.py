"""The public names that need JAX: imported when one of them is first used."""

from __future__ import annotations

from pullback_runtime.call._backend import (
    backends as backends,
    default_backend as default_backend,
    devices as devices,
)
from pullback_runtime.call._callable import make_callable as make_callable
from pullback_runtime.call._compile import clear_cache as clear_cache, compile as compile
from pullback_runtime.call._convention import Convention as Convention
from pullback_runtime.call._executable import Executable as Executable, Memory as Memory
from pullback_runtime.call._handle import (
    ModuleHandle as ModuleHandle,
    lazy_handle as lazy_handle,
    make_handle as make_handle,
)
from pullback_runtime.call._interpret import run_interpreted as run_interpreted
from pullback_runtime.call._primitive import (
    Halves as Halves,
    Transposed as Transposed,
    call_module as call_module,
    set_rules as set_rules,
)
from pullback_runtime.files._load import LoadedProgram as LoadedProgram
