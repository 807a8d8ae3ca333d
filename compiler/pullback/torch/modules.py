"""Trace modules of PyTorch through torchax."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import jax
import numpy as np
import torch

from pullback import Program, trace as traced
from pullback.errors import PullbackError
from pullback.torch import functions, kinks
from pullback.torch.environment import Tensor, TorchRules


def parameters(module: Any) -> OrderedDict[str, Any]:
    """Return the parameters of a module as arrays, by name and in their order."""
    return OrderedDict((name, _array(each, name)) for name, each in _named_parameters(module))


def trace(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Program:
    """Return the Program of a call of a module."""
    env = TorchRules(functions.apply, kinks.with_rule)
    buffers = dict(module.named_buffers()) if isinstance(module, torch.nn.Module) else {}
    constants = {name: _array(each, name) for name, each in buffers.items()}

    def call(parameters: Any, *args: Any, **kwargs: Any) -> Any:
        given = {**constants, **parameters}
        state = {name: Tensor(jax.numpy.asarray(each), env) for name, each in given.items()}
        inputs = jax.tree.map(lambda x: Tensor(jax.numpy.asarray(x), env), (args, kwargs))
        with env.tracing():
            if isinstance(module, torch.nn.Module):
                result = torch.func.functional_call(module, state, *inputs)
            else:
                result = module(*inputs[0], **inputs[1])
        return env.t2j_iso(result)

    call.__name__ = call.__qualname__ = type(module).__name__
    arrays = jax.tree.map(lambda x: _array(x, "an argument"), (args, kwargs))
    return traced(call)(parameters(module), *arrays[0], **arrays[1])


def _named_parameters(module: Any) -> Any:
    return module.named_parameters() if isinstance(module, torch.nn.Module) else ()


def _array(value: Any, name: str) -> Any:
    """Return a tensor as an array of NumPy, as JAX takes it."""
    if not isinstance(value, torch.Tensor):
        return value
    array = value.detach().cpu().numpy()
    if array.dtype in (np.float64, np.complex128) and not jax.config.jax_enable_x64:
        raise PullbackError(
            f"{name} has 64 bits ({array.dtype}), and JAX has 32 bits here",
            do="set JAX_ENABLE_X64=1, or make it 32 bits by `.float()`",
        )
    return array
