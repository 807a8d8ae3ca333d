"""The environment in which torchax runs modules, with what is changed of torchax and torch."""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import jax
import torch

from pullback.errors import PullbackError


@contextlib.contextmanager
def _named_dimensions() -> Iterator[None]:
    """Answer for overloads by named dimensions, which torchax 0.0.13 lists and torch 2.13 lacks."""
    packet = torch._ops.OpOverloadPacket
    before = packet.__getattr__

    def attribute(self: Any, name: str) -> Any:
        try:
            return before(self, name)
        except AttributeError:
            if re.search("dimname|names", name, re.IGNORECASE):
                return object()
            raise

    packet.__getattr__ = attribute
    try:
        yield
    finally:
        packet.__getattr__ = before


with _named_dimensions():
    import torchax.decompositions  # noqa: F401
    from torchax.ops.mappings import j2t_dtype as j2t_dtype
    from torchax.tensor import Environment, Tensor as Tensor
    from torchax.view import View as View

Apply = Callable[..., Any]


class TorchRules(Environment):  # type: ignore[misc]
    """An environment of torchax in which functions have the derivatives that torch gives them.

    Args:
      apply: what calls a `torch.autograd.Function`: of the environment, its class, the function
        that torch calls, and its arguments.
      with_rule: the function of the environment that calls an op, and what it is called with; or
        None for an op whose derivative is that of torchax's formula.
    """

    def __init__(self, apply: Apply, with_rule: Callable[[Any, Any], Apply | None]):
        super().__init__()
        self._apply = apply
        self._with_rule = with_rule

    @contextlib.contextmanager
    def tracing(self) -> Iterator[None]:
        """Run what is in this context on arrays of JAX, with rules."""
        base = torch.autograd.function._SingleLevelFunction
        before = base.__dict__.get("apply")
        original = torch._C._FunctionBase.__dict__["apply"]

        def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
            result = self._apply(self, cls, original.__get__(None, cls), args, kwargs)
            return result if torch.is_grad_enabled() else jax.tree.map(_stopped, result)

        base.apply = classmethod(apply)  # also for a `Function.apply` that was looked up before
        try:
            with torch.enable_grad(), self, warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Explicitly requested dtype int64")
                yield
        finally:
            if before is None:
                del base.apply
            else:
                base.apply = before

    def dispatch(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Call an op, by its rule if it has one, and stop gradients under `torch.no_grad`."""
        call = self._with_rule(self, func)
        if call is None:
            result = super().dispatch(func, types, args, kwargs)
        else:
            result = call(*args, **kwargs or {})
        if not torch.is_grad_enabled():
            given = {id(each) for each in jax.tree.leaves((args, kwargs))}
            result = jax.tree.map(lambda x: x if id(x) in given else _stopped(x), result)
        return result

    def by_formula(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Call an op as torchax does."""
        return super().dispatch(func, (), args, kwargs)

    def t2j_iso(self, tensors: Any) -> Any:
        """Unwrap arrays of JAX; tensors of torch, such as those that are global, are constants."""
        known = torch.utils._pytree.tree_map_only(torch.Tensor, self._of_jax, tensors)
        return super().t2j_iso(known)

    def _of_jax(self, tensor: Any) -> Any:
        if isinstance(tensor, Tensor | View):
            return tensor
        return Tensor(self.t2j_copy(tensor), self)

    def _should_use_torchax_tensor(self, device: Any) -> bool:
        return device is None or super()._should_use_torchax_tensor(device)

    def get_and_rotate_prng_key(self, generator: Any = None) -> Any:
        """Raise: a program has no random numbers of its own, and these would be its constants."""
        raise PullbackError(
            "the module draws random numbers, which would be constants of the program",
            do="call `module.eval()`, which turns dropout off, or pass the numbers as an argument",
        )


def _stopped(value: Any) -> Any:
    return value.detach() if isinstance(value, Tensor) else value
