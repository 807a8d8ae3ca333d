"""Trace modules of PyTorch: `pb.torch.trace`, `pb.torch.parameters`.

torchax runs a module on arrays of JAX, and loses what torch knows of its derivatives. `functions`
gives each `torch.autograd.Function` its rules, `kinks` has a table of functions whose derivatives
are those of torch, `environment` is the one place that changes torchax, and torch while it traces.
torch is imported when one of these is called.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from pullback.errors import PullbackError
from pullback_runtime._install import requirement

__all__ = ["parameters", "trace"]


def trace(module: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> Any:
    """Return the Program of a call of a module of PyTorch.

    ```python
    program = pb.torch.trace(module, (x,))
    gradients = program.grad()(pb.torch.parameters(module), x)  # by the names of the parameters
    ```

    Its first argument is what `parameters` returns; the others are `args` and `kwargs`. Each call
    of a `torch.autograd.Function` has the rules of its class, `backward` and `jvp`; what
    `torch.no_grad` computes has no derivative. Buffers, such as the statistics of a batch
    normalization, and all else that the module reads are constants of the program; what a module in
    training writes to them is dropped.

    Args:
      module: a `torch.nn.Module`, in the mode that it is in; or a function of tensors, which has no
        parameters.
      args: its arguments, of which the shapes and dtypes count: tensors, arrays, any pytrees.
      kwargs: its arguments by name.

    Raises:
      PullbackError: torch or torchax is not installed; the module draws random numbers, has 64
        bits where JAX has 32, or calls a Function that writes to its arguments.
    """
    return _with_torch("modules").trace(module, tuple(args), dict(kwargs or {}))


def parameters(module: Any) -> OrderedDict[str, Any]:
    """Return the parameters of a module as arrays, in the order of `module.named_parameters()`.

    A `state_dict` is loaded into the module first; of another one with the same parameters, the
    arrays by these names are arguments as well.

    Raises:
      PullbackError: torch or torchax is not installed.
    """
    return _with_torch("modules").parameters(module)


def _with_torch(name: str) -> Any:
    missing = [each for each in ("torch", "torchax") if importlib.util.find_spec(each) is None]
    if missing:
        raise PullbackError(
            f"pullback.torch needs {' and '.join(missing)}, which "
            f"{'are' if len(missing) > 1 else 'is'} not installed",
            do=f"pip install {requirement('pullback', 'torch')}; docs/exchange.md says which "
            "versions go together",
        )
    return importlib.import_module(f"pullback.torch.{name}")
