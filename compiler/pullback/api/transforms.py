"""The transformations: JAX's names and signatures, on functions and on Programs.

Each one traces the function, derives a new Program in the IR, and calls it through one JAX
primitive under `jax.jit`. So a second call with arguments of the same types costs what a call of a
jitted function costs, and the results compose with each other and with JAX's transformations.
"""

from __future__ import annotations

import functools
import itertools
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ParamSpec, TypeVar

import jax
import numpy as np
from jax.tree_util import Partial

from pullback._jax import named_axes
from pullback.api import (
    linear_maps,
    named_axes as _named_axes,
    program_in_jax,
    static_arguments,
    tree_prefix,
)
from pullback.api.static_arguments import Specializing
from pullback.errors import ArgumentMismatchError, NotLinearError, PullbackError, headline
from pullback.frontend.trace import trace
from pullback.ir.locations import user_line
from pullback.program import (
    argument_leaves,
    derivation,
    halves,
    memo,
    memory_budget,
)
from pullback.program.derivation import Through, read_through
from pullback.program.memo import derived_once
from pullback.program.memory_budget import Memory
from pullback.program.program import Program
from pullback.program.record import P, here
from pullback.program.symbolic import SymbolicProgram

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_DERIVATION = "_pullback_derivation"
"""The attribute that says how a function was made here; `functools.wraps` copies it to others."""


@dataclass(frozen=True)
class Transformation:
    """A transformation of programs: a function of `derivation` and its options."""

    name: str
    options: tuple[tuple[str, Any], ...] = ()

    def __call__(self, program: P) -> P:
        return getattr(derivation, self.name)(program, **dict(self.options))


@dataclass(frozen=True)
class Derivation:
    """The origin of a function made here: the function it came from, and the steps since."""

    function: Callable[[], Any]  # a weak reference to the derived function
    base: Any
    steps: tuple[Transformation, ...]


def _note(function: Any, base: Any, steps: tuple[Transformation, ...]) -> None:
    setattr(function, _DERIVATION, Derivation(weakref.ref(function), base, steps))


def _origin(fun: Any) -> tuple[Any, tuple[Transformation, ...]]:
    """Return the function that one is derived from, and the steps since.

    A function that was not made here, or that only wraps one that was, is derived from itself.
    """
    found: Any = getattr(fun, _DERIVATION, None)
    made_here = found is not None and found.function() is fun
    return (found.base, found.steps) if made_here else (fun, ())


def program_of(
    fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Program | SymbolicProgram:
    """Return the Program of a function for such arguments; what was derived is not traced again.

    Of one for several platforms it is the variant for this one.
    """
    if isinstance(fun, Program):
        fun.flatten(args, kwargs)
        return here(fun)
    base, steps = _origin(fun)
    if base is fun:
        return trace(fun)(*args, **kwargs)
    program = program_of(base, args, kwargs)
    for step in steps:
        program = step(program)
    return program


def _transformed(fun: Callable[..., Any], step: Transformation) -> Callable[..., Any]:
    """Return a function that calls the program that a step derives from that of `fun`."""
    static_arguments.check_function(fun)
    base, before = _origin(fun)
    steps = (*before, step)
    call = derived_once(base, steps, functools.partial(_derived, steps)).call

    @functools.wraps(fun, updated=())
    def function(*args: Any, **kwargs: Any) -> Any:
        return call(args, kwargs)

    _note(function, base, steps)
    return function


def _derived(steps: tuple[Transformation, ...], get: Callable[[], Any]) -> Any:
    options = dict(steps[-1].options)
    # The search for a budget compiles the program: calls of it alone need not compile it again.
    is_compiled = isinstance(options.get("memory"), int)

    def make(get: Callable[[], Any]) -> Callable[..., Any]:
        def program_for(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            program = program_of(get(), args, kwargs)
            for step in steps:
                program = step(program)
            return program

        if is_compiled:
            program_for = memo.staged(program_for, steps[-1].name, get)

        def function(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            program = program_for(args, kwargs)
            if is_compiled:
                results = program(*args, **kwargs)
            else:
                results = program_in_jax.apply(program, args, kwargs)
            if not options.get("allow_int"):
                return results
            return _with_gradients(results, args, steps[-1], argument_leaves.restore_zeros)

        return function

    positions = [argument_leaves.several(dict(step.options)["argnums"]) for step in steps]
    of_wrt = {*itertools.chain(*positions)}
    return Specializing(make, steps[-1].name, of_wrt, get, jit=not is_compiled)


def _with_gradients(
    results: Any, args: tuple[Any, ...], step: Transformation, change: Callable[[Any, Any], Any]
) -> Any:
    """Replace the gradients among the results with `change(gradients, primals)`."""
    options = dict(step.options)
    numbers = argument_leaves.argnums_of(options["argnums"], len(args))
    primals = argument_leaves.chosen(args, numbers)
    if step.name == "value_and_grad":
        return results[0], change(results[1], primals)
    if options["has_aux"]:
        return change(results[0], primals), results[1]
    return change(results, primals)


def _derivative(
    fun: Callable[..., Any], step: Transformation, reduce_axes: Any
) -> Callable[..., Any]:
    """Return a function that gives gradients, which are totals over the axes named."""
    function = _transformed(fun, step)
    if reduce_axes == ():
        return function

    @functools.wraps(function, updated=())
    def of_totals(*args: Any, **kwargs: Any) -> Any:
        names = _named_axes.names_of(reduce_axes)
        total = functools.partial(_named_axes.totals, names=names)
        return _with_gradients(function(*args, **kwargs), args, step, total)

    return of_totals


def grad(
    fun: Callable[Parameters, Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    reduce_axes: Any = (),
    *,
    memory: Memory = None,
) -> Callable[Parameters, Any]:
    """Return a function that computes the gradient of `fun`; as `jax.grad`.

    Args:
      fun: a function that JAX can trace, or a Program. Its result is a scalar float.
      argnums: the positional arguments to differentiate with respect to: pytrees of floats.
      has_aux: `fun` returns a pair, of which only the first item is differentiated.
      holomorphic: `fun` is promised to be holomorphic; arguments and result are complex.
      allow_int: integer arguments are allowed; their gradient is JAX's float0.
      reduce_axes: names of axes of `jax.vmap`s around the call. The gradient by an argument that
        is the same along one of them is the sum over all its items; otherwise it is of one item.
        JAX has the option, and rejects it.
      memory: the temporaries that it may need: bytes, a size such as "8MB", or the name of a
        schedule: "store", "min-cut" or "recompute"; as for `Program.vjp`.

    Returns:
      A function of the arguments of `fun`. It returns the gradient, a pytree with the structure,
      shapes and dtypes of the argument (a custom rule may give it another float type, as in JAX);
      for several `argnums` a tuple of them; with `has_aux`, `(gradient, aux)`.

    Raises:
      DerivativeTypeError: the result is not a real scalar, or an argument is not a float.
      ArgumentMismatchError: `argnums` are out of range, or `memory` is not a budget.
      MissingRuleError: an op on the way has no derivative rule.
      MemoryBudgetError: no schedule fits the budget.
    """
    step = _step("grad", argnums, has_aux, holomorphic, allow_int, memory)
    return _derivative(fun, step, reduce_axes)


def value_and_grad(
    fun: Callable[Parameters, Result],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    reduce_axes: Any = (),
    *,
    memory: Memory = None,
) -> Callable[Parameters, tuple[Result, Any]]:
    """Return a function that computes the value of `fun` and its gradient; as `jax.value_and_grad`.

    Arguments and errors are those of `grad`.

    Returns:
      A function of the arguments of `fun`. It returns `(value, gradient)`, and with `has_aux`
      `((value, aux), gradient)`.
    """
    step = _step("value_and_grad", argnums, has_aux, holomorphic, allow_int, memory)
    return _derivative(fun, step, reduce_axes)


def _step(
    name: str, argnums: Any, has_aux: bool, holomorphic: bool, allow_int: bool, memory: Memory
) -> Transformation:
    options = {
        "argnums": argument_leaves.positions(argnums),
        "has_aux": has_aux,
        "holomorphic": holomorphic,
        "allow_int": allow_int,
        "memory": memory_budget.read(memory),
    }
    return Transformation(name, tuple(options.items()))


def laplacian(
    fun: Callable[Parameters, Any],
    argnums: int | Sequence[int] = 0,
    *,
    block: int | None = None,
) -> Callable[Parameters, Any]:
    """Return a function that computes the Laplacian of `fun`: the sum of its second derivatives.

    The sum is over the elements of the arguments at `argnums`; it is computed in one forward sweep,
    in which each value has its derivatives by all elements, and its Laplacian. Each rule is taken.

    Args:
      fun: a function that JAX can trace, or a Program. Its result is an array or a tree of arrays.
      argnums: the position of an argument of real floats, an array or a tree of arrays; or several,
        whose sum is taken.
      block: the number of elements whose derivatives are computed at a time; all if not given. It
        divides the memory that they take, and each block computes the values of `fun` again.

    Returns:
      A function of the arguments of `fun`. Its result has the structure, shapes and dtypes of that
      of `fun`, with None for an integer.

    Raises:
      DerivativeTypeError: an argument is not a real float.
      ArgumentMismatchError: `argnums` are out of range, or `block` is not a positive integer.
      MissingRuleError: an op on the way has no derivative rule, or its tangents no batch.
      NotLinearError: a backward rule that forward mode has to transpose is not linear.
    """
    options = ("argnums", argument_leaves.positions(argnums)), ("block", block)
    return _transformed(fun, Transformation("laplacian", options))


def jvp(
    fun: Callable[..., Any],
    primals: Sequence[Any],
    tangents: Sequence[Any],
    has_aux: bool = False,
    *,
    through: Through = "rules",
) -> tuple[Any, ...]:
    """Compute the value of a function, and its derivative in one direction; as `jax.jvp`.

    Args:
      fun: a function that JAX can trace, or a Program.
      primals: its arguments, a tuple or list.
      tangents: a tangent for each, of the same structure, shapes and dtypes; for integers and
        bools JAX's float0 zeros, or None.
      has_aux: `fun` returns a pair, of which only the first item is differentiated.
      through: `{f: "function"}` differentiates the code of a `custom_vjp` function f, or with a
        name in its place that of all functions of this name. Otherwise the backward rule is
        transposed, which has to be linear for that. "function" takes the code of all functions
        whose rule is not linear, and raises where another rule would be dropped.

    Returns:
      `(out, tangents of out)`, of equal shapes and dtypes; with `has_aux` the auxiliary data comes
      third.

    Raises:
      ArgumentMismatchError: tangents do not fit the arguments, or `through` names no function.
      NotLinearError: forward mode reaches a backward rule that is not linear.
      MissingRuleError: an op on the way has no derivative rule.
    """
    moving = linear_maps.check_tangents(primals, tangents)
    key = has_aux, read_through(through)
    make = functools.partial(_derived_jvp, *key)
    return derived_once(fun, ("jvp", *key), make).call(tuple(primals), {}, (moving,))


def _derived_jvp(has_aux: bool, through: str, get: Callable[[], Any]) -> Any:
    def make(get: Callable[[], Any]) -> Callable[..., Any]:
        def function(primals: Any, kwargs: dict[str, Any], tangents: Any) -> Any:
            program = program_of(get(), primals, kwargs)
            derived = derivation.jvp(program, has_aux=has_aux, through=through)
            out, moved, *aux = program_in_jax.apply_linear(derived, primals, tangents)
            return out, argument_leaves.restore_zeros(moved, out), *aux

        return function

    return Specializing(make, "jvp", None, get)


def vjp(
    fun: Callable[..., Any],
    *primals: Any,
    has_aux: bool = False,
    reduce_axes: Any = (),
    saveable_args: Any = True,
    in_nzs: Any = None,
    memory: Memory = None,
) -> tuple[Any, ...]:
    """Compute the value of a function, and the linear map from cotangents of its result.

    As `jax.vjp`. The map closes over the residuals of the forward pass, which is not rerun; it is a
    pytree, as JAX's is, and so it may cross the border of a jitted function.

    Args:
      fun: a function that JAX can trace, or a Program.
      primals: its arguments.
      has_aux: `fun` returns a pair, of which only the first item is differentiated.
      reduce_axes: what the map gives is summed over these axes, as by `grad`.
      saveable_args: False, or a tree of bools that is a prefix of the arguments: those that are
        False are not among the residuals. `pull.args_res` has `pb.NotSaveable()` where the map
        needs one, which has to be put there before the map is called.
      in_nzs: a tree of bools as well: those that are False are constants, whose cotangents are
        zero. `pull.out_nzs` tells which results have a tangent that may not be zero.
      memory: a budget for the residuals, and the temporaries of either pass; as for `grad`.

    Returns:
      `(out, pull)`, and with `has_aux` the auxiliary data. `pull(ct)` takes a cotangent with the
      structure, shapes and dtypes of `out`, and returns a tuple with one for each argument.

    Raises:
      ArgumentMismatchError: a cotangent or an option does not fit.
      MissingRuleError: an op on the way has no derivative rule.
      MemoryBudgetError: no schedule fits the budget.
      PullbackError: dimensions of the program are symbols, so that residuals lack static shapes.
    """
    tree = jax.tree.structure(primals)
    saveable = tree_prefix.flags_of(saveable_args, tree, "saveable_args", "pb.vjp")
    perturbed = _perturbed(in_nzs, tree, "pb.vjp")
    names = _named_axes.names_of(reduce_axes)
    if names and not all(saveable):
        raise ArgumentMismatchError(
            "saveable_args is not for a VJP function with reduce_axes: it needs all arguments",
            do="leave out one of them",
        )
    key = has_aux, perturbed, memory_budget.read(memory)
    make = functools.partial(_derived_vjp, *key)
    out, pull, *aux = derived_once(fun, ("vjp", *key), make)(*primals)
    pull.args_res = pull.fun.saved(primals, saveable)
    if names:
        pull = pull.replace(reduce_axes=names, primals=primals)
    return out, pull, *aux


def linearize(
    fun: Callable[..., Any],
    *primals: Any,
    has_aux: bool = False,
    in_nzs: Any = None,
    through: Through = "rules",
) -> tuple[Any, ...]:
    """Compute the value of a function, and the linear map from tangents of its arguments.

    As `jax.linearize`. The map closes over the residuals of the forward pass, and is a pytree.

    Args:
      fun: a function that JAX can trace, or a Program.
      primals: its arguments.
      has_aux: `fun` returns a pair, of which only the first item is differentiated.
      in_nzs: a tree of bools that is a prefix of the arguments: tangents of those that are False
        count as zero. `push.out_nzs` tells which results have a tangent that may not be zero.
      through: as for `jvp`.

    Returns:
      `(out, push)`, and with `has_aux` the auxiliary data. `push(*tangents)` takes a tangent for
      each argument, and returns those of `out`.

    Raises:
      ArgumentMismatchError: a tangent or an option does not fit.
      NotLinearError: forward mode reaches a backward rule that is not linear.
      MissingRuleError: an op on the way has no derivative rule.
      PullbackError: dimensions of the program are symbols, so that residuals lack static shapes.
    """
    perturbed = _perturbed(in_nzs, jax.tree.structure(primals), "pb.linearize")
    key = has_aux, perturbed, read_through(through)
    make = functools.partial(_derived_linearize, *key)
    out, push, *aux = derived_once(fun, ("linearize", *key), make)(*primals)
    push.out_nzs = push.func.out_nzs
    return out, push, *aux


def _perturbed(in_nzs: Any, tree: Any, taker: str) -> tuple[bool, ...] | None:
    """Return a flag for each leaf of the arguments; None if all are set."""
    flags = (True,) if in_nzs is None else tree_prefix.flags_of(in_nzs, tree, "in_nzs", taker)
    return None if all(flags) else flags


def _derived_vjp(
    has_aux: bool,
    perturbed: Sequence[bool] | None,
    memory: int | memory_budget.Storage,
    get: Callable[[], Any],
) -> Any:
    def make(get: Callable[[], Any]) -> Callable[..., Any]:
        def halves_of(primals: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            program = _of_fixed_sizes(program_of(get(), primals, kwargs), "vjp")
            order = _order(program, primals)
            flags = perturbed and [perturbed[i] for i in order]
            split = derivation.split_vjp(program, has_aux=has_aux, perturbed=flags, memory=memory)
            (forward, linear), leaves = halves.without_arguments(split)
            of_args, of_out = _types(forward, primals, has_aux)
            pull = linear_maps.PullBack(
                linear,
                of_args,
                of_out,
                in_tree=jax.tree.structure(primals),
                sources=[leaf if leaf is None else order[leaf] for leaf in leaves],
                nonzero=halves.takes_cotangents(linear, of_out),
            )
            return forward, pull

        return _in_halves(memo.staged(halves_of, "vjp", get), has_aux)

    call = Specializing(make, "vjp", None, get, jit=False).call

    def vjp(*primals: Any) -> Any:
        out, pull, residuals, *aux = call(primals, {})
        return out, linear_maps.CotangentMap(pull, None, residuals), *aux

    return vjp


def _derived_linearize(
    has_aux: bool, perturbed: Sequence[bool] | None, through: str, get: Callable[[], Any]
) -> Any:
    def make(get: Callable[[], Any]) -> Callable[..., Any]:
        def halves_of(primals: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            program = _of_fixed_sizes(program_of(get(), primals, kwargs), "linearize")
            flags = perturbed and [perturbed[i] for i in _order(program, primals)]
            forward, linear = derivation.linearize(
                program, has_aux=has_aux, perturbed=flags, through=through
            )
            of_args, of_out = _types(forward, primals, has_aux)
            nonzero = halves.gives_tangents(linear, of_out)
            return forward, linear_maps.PushForward(linear, of_args, of_out, nonzero, flags)

        return _in_halves(memo.staged(halves_of, "linearize", get), has_aux)

    call = Specializing(make, "linearize", None, get, jit=False).call

    def linearize(*primals: Any) -> Any:
        out, push, residuals, *aux = call(primals, {})
        return out, Partial(push, residuals), *aux

    return linearize


def _in_halves(halves_of: Callable[..., Any], has_aux: bool) -> Callable[..., Any]:
    """Return a function that runs the forward half, and returns the linear map beside its results.

    The forward half is called by itself, not in a jitted function: the runtime compiles programs of
    equal content once, whichever function they come from.
    """

    def function(primals: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        forward, linear = halves_of(primals, kwargs)
        out, residuals = program_in_jax.apply(forward, primals, {})
        out, *aux = out if has_aux else (out,)
        return out, linear, residuals, *aux

    return function


def _of_fixed_sizes(program: Program | SymbolicProgram, taker: str) -> Program:
    """Return a program if its shapes are static, as residuals need; else raise PullbackError."""
    if not isinstance(program, SymbolicProgram):
        return program
    raise PullbackError(
        f"pb.{taker} keeps residuals, which have no sizes while dimensions are symbols",
        do=f"take pb.grad, pb.value_and_grad, pb.jvp or jax.{taker} there, or sizes instead",
    )


def _order(program: Program, primals: tuple[Any, ...]) -> list[int]:
    """Return, for each leaf that the program takes, which leaf of the arguments it is."""
    tree = jax.tree.structure(primals)
    numbers = list(range(tree.num_leaves))
    if tree == program.in_tree.children()[0]:
        return numbers
    return jax.tree.leaves(program._as_taken(tree.unflatten(numbers)))  # a file may have another


def _types(forward: Program, primals: tuple[Any, ...], has_aux: bool) -> Any:
    """Return the types of the arguments and of the main result of the forward half."""
    out, _ = program_in_jax.apply(forward, primals, {})
    main = out[0] if has_aux else out
    return jax.tree.map(jax.typeof, (forward._as_taken(primals), main))


def linear_transpose(fun: Callable[..., Any], *primals: Any, reduce_axes: Any = ()) -> Any:
    """Return the transpose of a linear function; as `jax.linear_transpose`.

    A function of integers is transposed by JAX's rules, for integers have no cotangents in the IR.

    Args:
      fun: a function that is linear in all its arguments, or a Program of one.
      primals: arrays or `jax.ShapeDtypeStruct`s with the types of its arguments.

    Returns:
      A function from a cotangent of the result to a tuple of cotangents of the arguments. It is a
      pytree, whose leaves are the arrays that `fun` closes over.

    Raises:
      NotLinearError: the function is not linear.
      DerivativeTypeError: a Program of integers.
    """
    if reduce_axes:
        raise ArgumentMismatchError(
            "linear_transpose has no reduce_axes any more, as in JAX", do="leave it out"
        )
    program = program_of(fun, primals, {})
    if isinstance(program, SymbolicProgram):
        return Partial(jax.linear_transpose(program, *primals))
    is_function = not isinstance(fun, Program) and program.in_avals
    if is_function and all(map(_is_integer, program.in_avals)):
        return _transposed_integers(fun, primals, program)
    transposed = derivation.transpose(program)
    out = jax.tree.unflatten(program.out_tree, program.out_avals)

    @jax.jit
    def transpose(constants: tuple[Any, ...], cotangents: Any) -> Any:
        return program_in_jax.apply(replace(transposed, constants=constants), (cotangents,), {})

    def transposed_fun(constants: tuple[Any, ...], cotangents: Any) -> Any:
        return transpose(constants, linear_maps.check_tree(out, cotangents, "cotangent", "result"))

    return Partial(transposed_fun, tuple(transposed.constants))


def _is_integer(aval: Any) -> bool:
    return jax.dtypes.issubdtype(aval.dtype, np.integer)


_WITHOUT_INTEGERS = ("stablehlo.dot_general", "stablehlo.convert", "stablehlo.compare")
"""Ops through which JAX takes the cotangents of integers for zero."""


def _transposed_integers(
    fun: Callable[..., Any], primals: tuple[Any, ...], program: Program
) -> Partial:
    """Return JAX's transpose of a function of integers.

    Raises:
      NotLinearError: JAX has none, or loses a cotangent.
    """
    op = derivation.dependent_operation(program, _WITHOUT_INTEGERS)
    if op is not None:
        raise _not_transposed(f"they lose cotangents behind `{op.name}`", user_line(op.location))
    try:
        transposed = jax.linear_transpose(fun, *primals)
        jax.eval_shape(transposed, jax.tree.unflatten(program.out_tree, program.out_avals))
    except (TypeError, ValueError, AssertionError, NotImplementedError) as error:
        raise _not_transposed(headline(error)) from error
    return Partial(jax.jit(transposed.func), *transposed.args)


def _not_transposed(why: str, where: str | None = None) -> NotLinearError:
    return NotLinearError(
        f"cannot transpose a function of integers by JAX's rules: {why}",
        where=where,
        do="make it linear, with results of the same integer type, or convert its arguments to "
        "floats first",
    )


_LATER = object()


def jit(
    fun: Any = _LATER,
    *,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Sequence[str] | None = None,
    **options: Any,
) -> Callable[..., Any]:
    """Compile a function as a Program; as `jax.jit`. Derivatives of a call are derived in the IR.

    Args:
      fun: a function that JAX can trace, or a Program. Without it, the result is a decorator:
        `@pb.jit(static_argnums=1)`.
      static_argnums: positions of arguments that are Python values.
      static_argnames: names of such arguments.
      options: further options of `jax.jit`, such as `donate_argnums` and `out_shardings`.
    """
    if fun is _LATER:
        return functools.partial(
            jit, static_argnums=static_argnums, static_argnames=static_argnames, **options
        )
    static_arguments.check_function(fun)

    @functools.wraps(fun, updated=())
    def function(*args: Any, **kwargs: Any) -> Any:
        if jax.config.jax_disable_jit:  # what was traced for the Program would be abstract
            return fun(*args, **kwargs)
        leaves, tree = jax.tree.flatten((args, kwargs))
        values = {i: leaf for i, leaf in enumerate(leaves) if not isinstance(leaf, jax.core.Tracer)}
        if not values:
            return program_in_jax.apply(program_of(fun, args, kwargs), args, kwargs)
        left = [static_arguments.placeholder(x) if i in values else x for i, x in enumerate(leaves)]
        args, kwargs = jax.tree.unflatten(tree, left)
        fixed = static_arguments.fix(lambda: fun, tree, values)
        return program_in_jax.apply(trace(fixed)(*args, **kwargs), args, kwargs)

    jitted = jax.jit(
        function, static_argnums=static_argnums, static_argnames=static_argnames, **options
    )
    if static_argnums is None and static_argnames is None:
        _note(jitted, *_origin(fun))
    return jitted


def vmap(
    fun: Callable[Parameters, Any],
    in_axes: Any = 0,
    out_axes: Any = 0,
    axis_name: Any = None,
    axis_size: int | None = None,
    spmd_axis_name: Any = None,
    sum_match: bool = False,
) -> Callable[Parameters, Any]:
    """Return a function that maps `fun` over an axis of its arguments; as `jax.vmap`.

    The function is traced for one item and batched in the IR, its derivative rules with it; see
    `Program.vmap`. So it works where JAX has no batching rule. Where an axis has a name, along
    which the function may have collectives (`axis_name`, a vmap around the call, a mesh), JAX
    batches it before it is traced.

    Args:
      fun: a function that JAX can trace, or a Program.
      in_axes, out_axes, axis_name, axis_size, spmd_axis_name: as for `jax.vmap`.
      sum_match: `out_axes=None` of what differs between the items gives their sum.

    Raises:
      MissingRuleError: an op has no batch, such as one on tokens.
      ValueError: axes or sizes do not fit; JAX's error.
    """
    batched = functools.partial(
        jax.vmap,
        in_axes=in_axes,
        out_axes=out_axes,
        axis_name=axis_name,
        axis_size=axis_size,
        spmd_axis_name=spmd_axis_name,
        sum_match=sum_match,
    )
    by_pass = batched(_of_item(fun))
    if isinstance(fun, Program):
        return by_pass
    by_jax = batched(fun)

    @functools.wraps(by_jax, updated=())
    def mapped(*args: Any, **kwargs: Any) -> Any:
        has_names = axis_name is not None or named_axes.has_names_here()
        return by_jax(*args, **kwargs) if has_names else by_pass(*args, **kwargs)

    return mapped


def _of_item(fun: Callable[..., Any]) -> Callable[..., Any]:
    """Return the call of a function's Program, which `jax.vmap` batches by our pass."""
    static_arguments.check_function(fun)
    call = derived_once(fun, "item", _derived_item).call

    @functools.wraps(fun, updated=())  # holds the function, which the call does not
    def item(*args: Any, **kwargs: Any) -> Any:
        return call(args, kwargs)

    return item


def _derived_item(get: Callable[[], Any]) -> Any:
    def make(get: Callable[[], Any]) -> Callable[..., Any]:
        def function(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            return program_in_jax.apply(program_of(get(), args, kwargs), args, kwargs)

        return function

    return Specializing(make, "item", (), get)
