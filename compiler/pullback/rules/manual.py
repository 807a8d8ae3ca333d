"""`sdy.manual_computation`, which `jax.shard_map` lowers to: a body that runs on every device.

A value that is equal on all devices of an axis has one cotangent per device, which are parts of a
whole. A result takes an equal part of its cotangent to each device; the parts of an operand's are
summed. Where the devices of an axis hold terms of a sum (`unreduced`), each term has the whole
cotangent of the sum. Inside, collectives are differentiated as in collectives.py.

The backward body computes the forward one again: residuals would need shardings of their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from pullback._errors import NotDifferentiableError
from pullback._jax import ir, sdy
from pullback.dialect import build
from pullback.dialect.build import Value
from pullback.passes.activity import analyze
from pullback.passes.checks import check_runs_again
from pullback.passes.differentiation import Differentiation
from pullback.passes.forward import Forward
from pullback.passes.regions import replace_terminator, terminator
from pullback.passes.reverse import Reverse, identity
from pullback.rules.annotations import summed
from pullback.rules.calls import before, scatter
from pullback.rules.registry import Op, Tangents, jointly, rule


class _Shardings:
    """How the operands and results of a manual computation lie on its devices."""

    def __init__(self, op: Op) -> None:
        attributes = op.attributes
        self.operands = _per_value(attributes["in_shardings"])
        self.results = _per_value(attributes["out_shardings"])
        for sharding in (*self.operands, *self.results):
            _check_sum(sharding)
        self.manual_axes = attributes["manual_axes"]
        self.axes = list(sdy.ManualAxesAttr(self.manual_axes))
        self.diff = op.frame.diff

    def attributes(self, operands: Sequence[Any], results: Sequence[Any]) -> dict[str, Any]:
        return {
            "in_shardings": _together(operands),
            "out_shardings": _together(results),
            "manual_axes": self.manual_axes,
        }

    def copies(self, sharding: Any) -> list[list[int]]:
        """Groups of devices that hold the same part of a value."""
        sharding = sdy.TensorShardingAttr(sharding)
        mesh = _mesh(self.diff, sharding.mesh_or_ref)
        axes = [sdy.MeshAxisAttr(a) for a in mesh.axes]
        used = _axes_of(sharding) | _names(sharding.unreduced_axes)
        same = [i for i, a in enumerate(axes) if a.name in self.axes and a.name not in used]
        sizes = [a.size for a in axes]
        devices = np.array(list(mesh.device_ids) or range(math.prod(sizes))).reshape(sizes)
        devices = np.moveaxis(devices, same, range(-len(same), 0))
        return devices.reshape(-1, math.prod(sizes[i] for i in same)).tolist()


def _per_value(attribute: Any) -> list[Any]:
    return list(sdy.TensorShardingPerValueAttr(attribute).shardings)


def _check_sum(sharding: Any) -> None:
    """Raises NotDifferentiableError where devices hold what the maximum or minimum is taken of."""
    reduction = getattr(sdy.TensorShardingAttr(sharding), "reduction_op", None)
    if reduction is not None and reduction.name != "SUM":
        raise NotDifferentiableError(
            f"a manual computation leaves a {reduction.name.lower()} over devices undone",
            do="take it inside: jax.lax.pmax, jax.lax.pmin",
        )


def _together(shardings: Sequence[Any]) -> Any:
    return sdy.TensorShardingPerValueAttr.get(list(shardings))


def _mesh(diff: Differentiation, reference: Any) -> Any:
    """The mesh of a sharding, written out or by its name."""
    if sdy.MeshAttr.isinstance(reference):
        return sdy.MeshAttr(reference)
    name = ir.FlatSymbolRefAttr(reference).value
    mesh = diff.symbols.others.get(name)
    if mesh is not None and mesh.name == "sdy.mesh":
        return sdy.MeshAttr(mesh.attributes["mesh"])
    raise NotDifferentiableError(f"no mesh @{name} in the module", do="define it: sdy.mesh")


def _axes_of(sharding: Any) -> set[str]:
    dims = [sdy.DimensionShardingAttr(d) for d in sharding.dimension_shardings]
    return _names(a for d in dims for a in d.axes)


def _names(attributes: Iterable[Any]) -> set[str]:
    axes = [sdy.AxisRefAttr(a) for a in attributes]
    if any(a.sub_axis_info is not None for a in axes):
        raise NotDifferentiableError(
            "a manual computation splits an axis of its mesh", do="give the parts axes of their own"
        )
    return {a.name for a in axes}


@rule("sdy.manual_computation", linear=jointly, family="control")
class ManualComputation:
    """The body computes its tangents too; the backward body pulls back the cotangents."""

    @staticmethod
    def activity(op: Op) -> list[bool]:
        block = op.operation.regions[0].blocks[0]
        active = {a for a, flag in zip(block.arguments, op.active, strict=True) if flag}
        analyze(block, active, op.frame)
        return [v in active for v in terminator(block).operands]

    @staticmethod
    def jvp(op: Op, tangents: Tangents) -> list[Value | None]:
        shardings = _Shardings(op)
        block = op.operation.regions[0].blocks[0]
        arguments = list(block.arguments)
        inner = Forward(op.frame.diff, _tangent_arguments(op, block, arguments, tangents))
        found = inner.run(block)
        outs = list(terminator(block).operands)
        flags = [t is not None for t in found]
        replace_terminator(block, [*outs, *(t for t in found if t is not None)])
        new = build.emit(
            op.name,
            [*(r.type for r in op.results), *_where(flags, [r.type for r in op.results])],
            [*op.operands, *(t for t in tangents if t is not None)],
            shardings.attributes(
                shardings.operands + _where(op.active, shardings.operands),
                shardings.results + _where(flags, shardings.results),
            ),
            regions=1,
        )
        block.append_to(new.regions[0])
        results = list(new.results)
        op.frame.replace(op, results[: len(flags)])
        return scatter(flags, results[len(flags) :])

    @staticmethod
    def vjp(op: Op, cts: Tangents) -> list[Value | None]:
        shardings = _Shardings(op)
        given = [ct is not None for ct in cts]
        with before(op):
            copy = op.operation.clone(build.here.ip)
        found = _pull_back(op, copy.regions[0].blocks[0], shardings, given)
        check_runs_again(op.frame.diff, copy, "a manual computation")

        def cotangents(flags: Sequence[bool], values: Sequence[Any]) -> list[Any]:
            chosen = map(sdy.TensorShardingAttr, _where(flags, values))
            return list(map(summed, chosen))  # that of a term of a sum is that of the sum

        new = build.emit(
            op.name,
            _where(found, [v.type for v in op.operands]),
            [*_primals(op), *(ct for ct in cts if ct is not None)],
            shardings.attributes(
                shardings.operands + cotangents(given, shardings.results),
                cotangents(found, shardings.operands),
            ),
            regions=1,
        )
        copy.regions[0].blocks[0].append_to(new.regions[0])
        copy.erase()
        return scatter(found, list(new.results))


def _where(flags: Sequence[bool], values: Sequence[Any]) -> list[Any]:
    return [v for v, f in zip(values, flags, strict=True) if f]


def _tangent_arguments(
    op: Op, block: Any, arguments: list[Value], tangents: Tangents
) -> dict[Value, Value]:
    pairs = zip(arguments, tangents, strict=True)
    loc = op.operation.location
    return {a: block.add_argument(a.type, loc) for a, t in pairs if t is not None}


def _primals(op: Op) -> list[Value]:
    """Operands as the backward op may use them; where it is linear in one, any value will do."""
    linear = op.frame.linear
    return [
        build.zeros(v.type) if linear and active else op.operand(i)
        for i, (v, active) in enumerate(zip(op.operands, op.active, strict=True))
    ]


def _pull_back(op: Op, block: Any, shardings: _Shardings, given: Sequence[bool]) -> list[bool]:
    """Let a copy of the body return the cotangents of its arguments; which ones there are."""
    arguments = list(block.arguments)
    end = terminator(block)
    outs = _where(given, list(end.operands))
    reverse = Reverse(op.frame.diff, identity, op.frame.linear)
    reverse.analyze(block, _where(op.active, arguments))
    with build.inserting(ir.InsertionPoint(end), op.operation.location):
        for out, sharding in zip(outs, _where(given, shardings.results), strict=True):
            ct = block.add_argument(out.type, op.operation.location)
            copies = len(shardings.copies(sharding)[0])
            reverse.accumulate(out, ct if copies == 1 else build.mul(ct, 1.0 / copies))
        reverse.run()
        cts = [reverse.cts.get(a) for a in arguments]
        pairs = zip(cts, shardings.operands, strict=True)
        sums = [_sum(ct, shardings.copies(lie)) for ct, lie in pairs if ct is not None]
    replace_terminator(block, sums)
    return [ct is not None for ct in cts]


def _sum(ct: Value, groups: list[list[int]]) -> Value:
    """The sum over groups of devices; nothing if each is alone."""
    if len(groups[0]) == 1:
        return ct
    attributes = {
        "replica_groups": build.i64_rows(groups, len(groups[0])),
        "channel_handle": build.attr("#stablehlo.channel_handle<handle = 1, type = 1>"),
        "use_global_device_ids": build.attr("unit"),
    }
    op = build.emit("stablehlo.all_reduce", [ct.type], [ct], attributes, regions=1)
    element = build.tensor((), build.info(ct.type).element)
    build.fill_binary(op.regions[0], "stablehlo.add", element)
    return op.results[0]
