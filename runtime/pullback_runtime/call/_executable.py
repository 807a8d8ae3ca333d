"""A compiled module: call it, read its HLO, its cost and its memory."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import Any

import jax

from pullback_runtime._errors import BackendNotFoundError, PullbackRuntimeError
from pullback_runtime.call._handle import ModuleHandle
from pullback_runtime.ir import _module
from pullback_runtime.ir._module import Aval

BYTES = "bytes accessed"
MOST_ROWS = 200
"""Limits the lines of HLO that a notebook shows: it keeps what it shows."""


@dataclass(frozen=True)
class Memory:
    """Bytes an executable needs, per device."""

    arguments: int
    outputs: int
    temporaries: int
    aliased: int
    code: int

    @property
    def total(self) -> int:
        """Arguments, outputs and temporaries together; aliased buffers count once."""
        return self.arguments + self.outputs + self.temporaries - self.aliased


class Executable:
    """A module compiled for a backend; made by `compile`.

    Calling it with flat positional arrays returns a tuple of JAX arrays, one per result; compiled
    with a `Convention`, it takes and returns what that says. Dispatch is asynchronous, as with
    `jax.jit`: a call returns before its results are computed.
    """

    def __init__(
        self,
        handle: ModuleHandle,
        function: Callable[..., Any],
        compiled: Any,
        devices: tuple[jax.Device, ...],
    ) -> None:
        self._handle = handle
        self._function = function
        self._compiled = compiled
        self.devices = devices
        # A Python `__call__` adds 7 % to a dispatch of 3 us. Python looks `__call__` up on the
        # class, so each executable gets a class of its own, whose `__call__` is the jitted
        # function itself; measured by benchmarks/dispatch.py.
        self.__class__ = type("Executable", (Executable,), {"__call__": staticmethod(function)})

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run it."""
        return self._function(*args, **kwargs)

    def __copy__(self) -> Executable:
        return self

    def __reduce__(self) -> Any:
        raise PullbackRuntimeError(
            "an executable cannot be pickled, nor copied in depth: it holds what XLA compiled",
            where=repr(self),
            do="hand on the module, or a saved program, and compile it there",
        )

    def __repr__(self) -> str:
        places = ", ".join(map(str, self.devices))
        return f"Executable(@{self._handle.entry} on {places})"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: types, cost and memory, with the HLO folded."""
        rows = [
            *((f"argument {i}", str(aval)) for i, aval in enumerate(self.in_avals)),
            *((f"result {i}", str(aval)) for i, aval in enumerate(self.out_avals)),
        ]
        with contextlib.suppress(PullbackRuntimeError):  # a backend that reports none
            rows += [(name, f"{self.cost().get(name, 0):,.0f}") for name in ("flops", BYTES)]
            memory = dataclasses.asdict(self.memory())
            rows += [(f"bytes of {name}", f"{size:,}") for name, size in memory.items()]
        cells = "".join(f"<tr><td>{escape(a)}</td><td>{escape(b)}</td></tr>" for a, b in rows)
        hlo = self.hlo().splitlines()
        more = [f"… {len(hlo) - MOST_ROWS} more lines: hlo() returns them"]
        text = escape("\n".join(hlo[:MOST_ROWS] + more * (len(hlo) > MOST_ROWS)))
        return (
            f"<details><summary><code>{escape(repr(self))}</code></summary>"
            f"<table>{cells}</table>"
            f"<details><summary>HLO</summary><pre>{text}</pre></details></details>"
        )

    @property
    def handle(self) -> ModuleHandle:
        """The handle to pass to `call_module`: the module as a value inside jit, grad and vmap."""
        return self._handle

    @property
    def in_avals(self) -> tuple[Aval, ...]:
        """Shapes and dtypes of the arguments."""
        return self._handle.in_avals

    @property
    def out_avals(self) -> tuple[Aval, ...]:
        """Shapes and dtypes of the results."""
        return self._handle.out_avals

    def stablehlo(self) -> str:
        """Return the module that was compiled, as StableHLO text."""
        return str(_module.parse(self._handle.load()))

    def hlo(self) -> str:
        """Return XLA's optimised HLO."""
        return self._compiled.as_text()

    def cost(self) -> dict[str, float]:
        """Return XLA's cost analysis: 'flops', 'bytes accessed', 'transcendentals' and more."""
        analysis = self._compiled.cost_analysis()
        return dict(self._reported(analysis, "cost"))

    def memory(self) -> Memory:
        """Return XLA's memory analysis."""
        stats = self._reported(self._compiled.memory_analysis(), "memory")
        return Memory(
            arguments=stats.argument_size_in_bytes,
            outputs=stats.output_size_in_bytes,
            temporaries=stats.temp_size_in_bytes,
            aliased=stats.alias_size_in_bytes,
            code=stats.generated_code_size_in_bytes,
        )

    def _reported(self, analysis: Any, what: str) -> Any:
        if analysis is not None:
            return analysis
        raise PullbackRuntimeError(
            f"this backend reports no {what} analysis",
            where=repr(self),
            do="compile for cpu, cuda or tpu to see one",
        )


def not_here(topology: str) -> Callable[..., Any]:
    """Return a function that raises: the call of a program compiled for absent hardware."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise BackendNotFoundError(
            f"cannot run a program compiled ahead of time for {topology!r}",
            where="in the call of an Executable",
            do="read its hlo(), cost() and memory(); to run it, compile without topology= there",
        )

    return refuse
