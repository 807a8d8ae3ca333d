"""Rules of `torch.autograd.Function`: `backward` and `jvp`, as those of a `custom_vjp`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import torch

from pullback import custom_vjp
from pullback.errors import NotDifferentiableError, PullbackError
from pullback.torch.environment import Tensor, TorchRules, View

Function = torch.autograd.Function
ONCE = torch.autograd.function.once_differentiable(lambda ctx: None).__code__
"""The code of each `backward` that is marked `once_differentiable`."""


def apply(env: TorchRules, cls: Any, original: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Call a `torch.autograd.Function` as a function with the rules of its class."""
    places = [i for i, each in enumerate(args) if isinstance(each, Tensor | View)]
    if not places:
        return original(*args, **kwargs)
    call = FunctionCall(env, cls, args, kwargs, places)
    outputs = call.with_rules()(*(args[i].jax() for i in places))
    return call.returned(outputs)


class Context(torch.autograd.function.FunctionCtx):  # type: ignore[misc]
    """The `ctx` of a Function: a pytree, with the tensors in it as arrays."""

    def __init__(self, needs_input_grad: Sequence[bool]):
        self.needs_input_grad = tuple(needs_input_grad)
        self.materialize_grads = True
        self.to_save: Any = ()
        self.saved_for_forward: Any = None
        self.non_differentiable: Any = ()
        self.dirty_tensors: Any = ()

    @property
    def saved_tensors(self) -> Any:
        """Return what `save_for_backward`, or in `jvp` `save_for_forward`, was given."""
        return self.to_save


@jax.tree_util.register_pytree_node_class
class Saved:
    """Keep the residuals of a call: its arguments, and the context as a tree of leaves.

    Args:
      arrays: the arguments that are tensors.
      tensors: the leaves of the context that are.
      others: its tree, and its leaves with None in the place of these.
    """

    def __init__(self, arrays: Sequence[Any], tensors: Sequence[Any], others: Others):
        self.arrays = arrays
        self.tensors = tensors
        self.others = others

    def tree_flatten(self) -> tuple[Any, Any]:
        """Return the arrays, and what is static."""
        return (self.arrays, self.tensors), self.others

    @classmethod
    def tree_unflatten(cls, others: Others, children: Any) -> Saved:
        """Return the residuals with these arrays."""
        arrays, tensors = children
        return cls(arrays, tensors, others)


class Others:
    """Hold what a context keeps besides tensors; it equals itself alone."""

    def __init__(self, tree: Any, leaves: Sequence[Any]):
        self.tree = tree
        self.leaves = leaves


class FunctionCall:
    """Call a Function with arrays in the place of its tensors."""

    def __init__(self, env: TorchRules, cls: Any, args: Any, kwargs: Any, places: Sequence[int]):
        self.env = env
        self.cls = cls
        self.kwargs = kwargs
        self.places = places
        self.args = [None if i in places else each for i, each in enumerate(args)]
        arrays = [args[i].jax() for i in places]
        self.inexact = [jnp.issubdtype(each.dtype, jnp.inexact) for each in arrays]
        self.like: Any = None

    def with_rules(self) -> Callable[..., Any]:
        """Return the function of arrays with its rules."""

        def function(*arrays: Any) -> Any:
            return self.run(arrays)[0]

        function.__name__ = function.__qualname__ = self.cls.__name__
        call = custom_vjp(function)

        def forward(*arrays: Any) -> Any:
            return self.saving(call, arrays)

        call.defvjp(forward, self.backward)
        if self.cls.jvp is not Function.jvp:
            call.defjvp(self.jvp)
        return call

    def run(self, arrays: Sequence[Any]) -> tuple[Any, Context, list[Any], list[Any]]:
        """Run `forward`: return arrays, its context, and the tensors it was given and returned."""
        needed = iter(self.inexact)
        ctx = Context([i in self.places and next(needed) for i in range(len(self.args))])
        given = [Tensor(each, self.env) for each in arrays]
        args = self.filled(given)
        with self.env.tracing():
            if self.cls.setup_context is Function.setup_context:
                result = self.cls.forward(ctx, *args, **self.kwargs)
            else:
                result = self.cls.forward(*args, **self.kwargs)
                self.cls.setup_context(ctx, tuple(args), result)
        if ctx.dirty_tensors:
            raise PullbackError(
                f"`{self.cls.__name__}.forward` writes to its arguments (`ctx.mark_dirty`)",
                do="let it return a new tensor",
            )
        several = isinstance(result, tuple)
        outputs = list(result) if several else [result]
        is_tensor = [isinstance(each, torch.Tensor) for each in outputs]
        self.like = [None if known else each for known, each in zip(is_tensor, outputs)], several
        tensors = [each for known, each in zip(is_tensor, outputs) if known]
        return tuple(self.env.t2j_iso(tensors)), ctx, given, tensors

    def filled(self, tensors: Sequence[Any]) -> list[Any]:
        """Return the arguments with these in the place of tensors."""
        args = list(self.args)
        for i, tensor in zip(self.places, tensors):
            args[i] = tensor
        return args

    def returned(self, arrays: Sequence[Any]) -> Any:
        """Return what the Function returns, with these arrays as tensors."""
        like, several = self.like
        waiting = iter(arrays)
        outputs = [Tensor(next(waiting), self.env) if each is None else each for each in like]
        return tuple(outputs) if several else outputs[0]

    def saving(self, call: Callable[..., Any], arrays: Sequence[Any]) -> Any:
        """Return the results, and the residuals of `backward`.

        As in torch, a derivative of `backward` sees inputs that were saved, and results by the rule
        of the call; what `forward` computed on the way is constant.
        """
        _, ctx, given, tensors = self.run(arrays)
        outputs = call(*arrays)
        known = {id(tensor): array for tensor, array in zip(given, arrays)}
        leaves, tree = jax.tree.flatten(vars(ctx))
        known = {id(tensor): array for tensor, array in zip(tensors, outputs)} | known
        residuals = [_residual(each, known) for each in leaves if isinstance(each, torch.Tensor)]
        others = [None if isinstance(each, torch.Tensor) else _NotTensor(each) for each in leaves]
        return outputs, Saved(arrays, residuals, Others(tree, others))

    def backward(self, saved: Saved, cotangents: Any) -> Any:
        """Return the cotangents of the arrays, by `backward`."""
        ctx = self.restored(saved)
        user = self.cls.vjp if self.cls.vjp is not Function.vjp else self.cls.backward
        is_once = getattr(user, "__code__", None) is ONCE
        user = user.__wrapped__ if is_once else user
        given = [Tensor(each, self.env) for each in cotangents]
        waiting = iter(given)
        grads = [next(waiting) if each is None else None for each in self.like[0]]
        with self.env.tracing():
            found = user(ctx, *([grads] if self.cls.boxed_grads_call else grads))
        found = found if isinstance(found, tuple | list) else (found,)
        moving = [found[i] if known else None for i, known in zip(self.places, self.inexact)]
        arrays = self.env.t2j_iso(moving)
        arrays = _once(self.cls.__name__)(arrays) if is_once else arrays
        pairs = zip(arrays, saved.arrays)
        return tuple(None if each is None else _fitting(each, array) for each, array in pairs)

    def jvp(self, arrays: Any, tangents: Any) -> Any:
        """Return the results and their tangents, by `jvp`."""
        outputs, ctx, _, _ = self.run(arrays)
        if ctx.saved_for_forward is not None:
            ctx.to_save = ctx.saved_for_forward
        moving = [
            Tensor(each, self.env) if inexact else None
            for each, inexact in zip(tangents, self.inexact)
        ]
        with self.env.tracing():
            found = self.cls.jvp(ctx, *self.filled_with_tangents(moving))
        found = found if isinstance(found, tuple | list) else (found,)
        pairs = zip([each for each, like in zip(found, self.like[0]) if like is None], outputs)
        return outputs, tuple(_tangent(each, output) for each, output in pairs)

    def filled_with_tangents(self, tangents: Sequence[Any]) -> list[Any]:
        """Return the tangents of all arguments: None of what is no tensor."""
        args = [None] * len(self.args)
        for i, tangent in zip(self.places, tangents):
            args[i] = tangent
        return args

    def restored(self, saved: Saved) -> Context:
        """Return a context with what it had at the end of `forward`."""
        waiting = iter(saved.tensors)
        leaves = [
            Tensor(next(waiting), self.env) if each is None else each.value
            for each in saved.others.leaves
        ]
        ctx = Context(())
        ctx.__dict__.update(jax.tree.unflatten(saved.others.tree, leaves))
        return ctx


class _NotTensor:
    """Hold a value that is not a tensor, and may be None."""

    def __init__(self, value: Any):
        self.value = value


def _residual(tensor: Any, known: dict[int, Any]) -> Any:
    if id(tensor) in known:
        return known[id(tensor)]
    return jax.lax.stop_gradient(tensor.jax()) if isinstance(tensor, Tensor | View) else tensor


def _fitting(cotangent: Any, array: Any) -> Any:
    """Return a cotangent in the type of its array: torch sums over axes of a broadcast."""
    cotangent = cotangent.astype(array.dtype)
    if cotangent.shape == array.shape:
        return cotangent
    (summed,) = jax.vjp(lambda x: jnp.broadcast_to(x, cotangent.shape), array)[1](cotangent)
    return summed


def _once(name: str) -> Callable[..., Any]:
    """Return the identity without a derivative."""

    @jax.custom_jvp
    def once(arrays: Any) -> Any:
        return arrays

    @once.defjvp
    def _refuse(primals: Any, tangents: Any) -> Any:
        raise NotDifferentiableError(
            f"`{name}.backward` is marked `once_differentiable`, and has no derivative",
            do="write it as differentiable ops of torch, without the mark",
        )

    return once


def _tangent(found: Any, output: Any) -> Any:
    if not jnp.issubdtype(output.dtype, jnp.inexact):
        return jnp.zeros(output.shape, jax.dtypes.float0)
    return jnp.zeros_like(output) if found is None else found.jax().astype(output.dtype)
