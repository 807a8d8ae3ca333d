"""Functions whose derivatives are those of torch: at kinks these are not those of the formula.

Their rules are traced from torch's own derivatives: `torch.func.vjp` and `torch.func.jvp` of the
function, as a graph of ops, which torchax runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import _disable_current_modes

from pullback import custom_vjp
from pullback.torch.environment import TorchRules, j2t_dtype

aten = torch.ops.aten

TABLE = {
    aten.abs,
    aten.atan2,
    aten.clamp,
    aten.clamp_max,
    aten.clamp_min,
    aten.elu,
    aten.fmax,
    aten.fmin,
    aten.hardsigmoid,
    aten.hardswish,
    aten.hardtanh,
    aten.hypot,
    aten.leaky_relu,
    aten.linalg_vector_norm,
    aten.log_sigmoid,
    aten.norm,
    aten._prelu_kernel,
    torch.abs,
    torch.clamp,
}
"""The functions that have the derivatives of torch: docs/exchange.md has the list."""

COMPOSED = {torch._C._nn.log_sigmoid: aten.log_sigmoid.default}
"""Functions that torch makes of ops before these are dispatched, and ops of torchax for them."""


ORDER = 2
"""The derivatives up to this order are those of torch; others are those of the formula of these."""


def with_rule(env: TorchRules, func: Any) -> Callable[..., Any] | None:
    """Return what calls an op of the table with rules, or None."""
    func = COMPOSED.get(func, func)
    if getattr(func, "overloadpacket", func) not in TABLE:
        return None
    return lambda *args, **kwargs: _call(env, func, args, kwargs)


def _call(env: TorchRules, func: Any, args: Any, kwargs: Any) -> Any:
    leaves, tree = torch.utils._pytree.tree_flatten((args, kwargs))
    places = [i for i, each in enumerate(leaves) if isinstance(each, torch.Tensor)]

    def filled(tensors: Sequence[Any]) -> Any:
        given = dict(zip(places, tensors))
        every = [given.get(i, each) for i, each in enumerate(leaves)]
        return torch.utils._pytree.tree_unflatten(every, tree)

    def function(*tensors: Any) -> Any:
        args, kwargs = filled(tensors)
        return func(*args, **kwargs)

    def run(*arrays: Any) -> Any:
        with env.tracing():
            return env.t2j_iso(env.by_formula(func, *filled(env.j2t_iso(arrays))))

    arrays = env.t2j_iso([leaves[i] for i in places])
    if not all(jnp.issubdtype(each.dtype, jnp.inexact) for each in arrays):
        return env.by_formula(func, args, kwargs)
    name = str(func).replace(".", "_")
    return env.j2t_iso(OfTorch(env, name, function, run, ORDER)(*arrays))


class OfTorch:
    """Compute a function of arrays, with the derivatives that torch gives for it on tensors.

    Args:
      name: what the function is called in the module.
      function: the function of tensors.
      run: what it computes, of arrays.
      order: how many of its derivatives are those of torch.
    """

    def __init__(
        self,
        env: TorchRules,
        name: str,
        function: Callable[..., Any],
        run: Callable[..., Any],
        order: int,
    ):
        self.env = env
        self.name = name
        self.function = function
        self.run = run
        self.order = order

    def __call__(self, *arrays: Any) -> Any:
        """Return the result for these arrays, as a call with rules."""
        if not self.order:
            return self.run(*arrays)

        def function(*arrays: Any) -> Any:
            return self.run(*arrays)

        function.__name__ = function.__qualname__ = self.name
        call = custom_vjp(function)
        call.defvjp(lambda *arrays: (call(*arrays), arrays), self.pulled_back)
        call.defjvp(lambda arrays, tangents: (call(*arrays), self.pushed(arrays, tangents)))
        return call(*arrays)

    def pulled_back(self, arrays: Any, cotangents: Any) -> Any:
        """Return the cotangents of the arrays."""
        leaves, tree = jax.tree.flatten(cotangents)

        def derivative(*tensors: Any) -> Any:
            at = len(tensors) - len(leaves)
            back = torch.func.vjp(self.function, *tensors[:at])[1]
            return back(jax.tree.unflatten(tree, tensors[at:]))

        graph = self.graph(derivative, (*arrays, *leaves))
        if graph is None:
            return jax.vjp(self.run, *arrays)[1](cotangents)
        return tuple(self.derived("vjp", derivative, graph)(*arrays, *leaves))

    def pushed(self, arrays: Any, tangents: Any) -> Any:
        """Return the tangents of the results."""

        def derivative(*tensors: Any) -> Any:
            half = len(tensors) // 2
            return torch.func.jvp(self.function, tensors[:half], tensors[half:])[1]

        graph = self.graph(derivative, (*arrays, *tangents))
        if graph is None:
            return jax.jvp(self.run, arrays, tangents)[1]
        return self.derived("jvp", derivative, graph)(*arrays, *tangents)

    def derived(self, mode: str, derivative: Callable[..., Any], graph: Any) -> OfTorch:
        """Return a derivative, as a function with the derivatives of torch."""

        def run(*arrays: Any) -> Any:
            with self.env.tracing():
                return self.env.t2j_iso(graph(*self.env.j2t_iso(arrays)))

        return OfTorch(self.env, f"{self.name}_{mode}", derivative, run, self.order - 1)

    def graph(self, derivative: Callable[..., Any], arrays: Sequence[Any]) -> Any:
        """Return a derivative as a graph of ops, or None if torch has none."""
        with _disable_current_modes(), torch._C.DisableTorchFunction():
            examples = [torch.zeros(each.shape, dtype=j2t_dtype(each.dtype)) for each in arrays]
            table = torch._decomp.core_aten_decompositions()
            table[aten._new_zeros_with_same_feature_meta.default] = _zeros_of_tangent
            table[aten._efficientzerotensor.default] = _zeros
            without_mutations = torch.func.functionalize(derivative, remove="mutations")
            try:
                graph = make_fx(without_mutations, table, "fake")(*examples)
            except (RuntimeError, NotImplementedError):
                return None
        for node in graph.graph.nodes:  # tensors of these examples are on the CPU
            node.kwargs = {key: each for key, each in node.kwargs.items() if key != "device"}
        graph.graph.eliminate_dead_code(lambda node: node.op in ("placeholder", "output"))
        graph.recompile()
        return graph


def _zeros_of_tangent(tangent: Any, primal: Any, **_: Any) -> Any:
    """Return zeros for the tangent of a primal: what forward mode of torch calls."""
    return torch.zeros_like(primal)


def _zeros(size: Any, dtype: Any = None, **_: Any) -> Any:
    return torch.zeros(size, dtype=dtype)
