"""Differentiate `sdy.manual_computation`, to which `jax.shard_map` lowers.

Its body runs on every device. A value that is equal on all devices of an axis has one cotangent per
device, and their sum is its cotangent. So each device takes an equal part of a result's cotangent,
and an operand's are summed. Where the devices of an axis hold terms of a sum (`unreduced`), each
term has the whole cotangent of the sum. Inside, collectives are differentiated as in
collectives.py.

The forward body returns the residuals that the backward body needs: the values of all devices,
along a dimension of their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from pullback._jax import ir, sdy
from pullback.autodiff.activity import analyze, numbered
from pullback.autodiff.registry import Op, Row, Tangents, carried, distributed, jointly, rule
from pullback.autodiff.residuals import Residuals
from pullback.autodiff.reverse import Reverse
from pullback.autodiff.state import Differentiation
from pullback.errors import NotDifferentiableError
from pullback.ir import build
from pullback.ir.build import Value
from pullback.ir.regions import MANUAL, blocks, replace_terminator, terminator
from pullback.rules.calls.func_call import before, scatter
from pullback.rules.collectives import added
from pullback.rules.custom_calls import summed
from pullback_runtime.ir._erasure import erase


class _Shardings:
    """The shardings of a manual computation's operands and results."""

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

    def stacked(self, row: Value) -> Any:
        """Return the sharding of a stack with one row per device."""
        axes = [sdy.AxisRefAttr.get(name) for name in self.axes]
        rest = [sdy.DimensionShardingAttr.get([], is_closed=False)] * (build.rank(row) - 1)
        first = sdy.DimensionShardingAttr.get(axes, is_closed=True)
        mesh = sdy.TensorShardingAttr(self.results[0]).mesh_or_ref
        return sdy.TensorShardingAttr.get(mesh, [first, *rest])

    def type_of_stack(self, row: Value) -> Any:
        mesh = _mesh(self.diff, sdy.TensorShardingAttr(self.results[0]).mesh_or_ref)
        axes = [sdy.MeshAxisAttr(a) for a in mesh.axes]
        count = math.prod(a.size for a in axes if a.name in self.axes)
        return build.tensor((count, *build.shape(row)[1:]), build.info(row.type).element)

    def copies(self, sharding: Any) -> list[list[int]]:
        """Return groups of devices that hold the same part of a value."""
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
    """Raise NotDifferentiableError if a maximum or minimum over devices is left undone."""
    reduction = getattr(sdy.TensorShardingAttr(sharding), "reduction_op", None)
    if reduction is not None and reduction.name != "SUM":
        raise NotDifferentiableError(
            f"a manual computation leaves a {reduction.name.lower()} over devices undone",
            do="take it inside: jax.lax.pmax, jax.lax.pmin",
        )


def _together(shardings: Sequence[Any]) -> Any:
    return sdy.TensorShardingPerValueAttr.get(list(shardings))


def _mesh(diff: Differentiation, reference: Any) -> Any:
    """Return the mesh of a sharding, which is written out or named."""
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


@rule(MANUAL, linear=jointly, family="control", hands_on=True)
class ManualComputation:
    """The rule: the body computes its tangents too; a backward body transposes it."""

    @staticmethod
    def activity(op: Op) -> list[bool]:
        block = op.operation.regions[0].blocks[0]
        active = numbered(_where(op.active, list(block.arguments)))
        analyze(block, active, op.frame)
        return [v in active for v in terminator(block).operands]

    @staticmethod
    def carry(op: Op, rows: Sequence[Row | None]) -> list[Row | None]:
        frame, shardings, loc = op.frame, _Shardings(op), op.operation.location
        block = op.operation.regions[0].blocks[0]
        given = [
            t
            for row, v in zip(rows, op.operands, strict=True)
            if row is not None
            for t in frame.full(row, v)
        ]
        arguments = list(block.arguments)
        inner = _times(frame, op.active, [a.type for a in arguments])
        added = [block.add_argument(type, loc) for type in inner]
        pairs = zip(arguments, distributed(op.active, added, frame.width), strict=True)
        found = frame.inside({a: row for a, row in pairs if row is not None}).rows(block)
        outs = list(terminator(block).operands)
        flags = [row is not None for row in found]
        end = terminator(block)
        with build.inserting(ir.InsertionPoint(end), end.location):
            pairs = zip(found, outs, strict=True)
            more = [t for row, v in pairs if row is not None for t in frame.full(row, v)]
        replace_terminator(block, [*outs, *more])
        types = [r.type for r in op.results]
        new = build.emit(
            op.name,
            [*types, *_times(frame, flags, types)],
            [*op.operands, *given],
            shardings.attributes(
                shardings.operands + _times(frame, op.active, shardings.operands),
                shardings.results + _times(frame, flags, shardings.results),
            ),
            regions=1,
        )
        block.append_to(new.regions[0])
        results = list(new.results)
        frame.replace(op, results[: len(flags)])
        return distributed(flags, results[len(flags) :], frame.width)

    jvp = staticmethod(carried(carry))

    @staticmethod
    def vjp(op: Op, cts: Tangents) -> list[Value | None]:
        return _ReversedBody(op).run(cts)


def _where(flags: Sequence[bool], values: Sequence[Any]) -> list[Any]:
    return [v for v, f in zip(values, flags, strict=True) if f]


def _times(frame: Any, flags: Sequence[bool], values: Sequence[Any]) -> list[Any]:
    """Return each value that is flagged, once for each item of a row."""
    return [v for v in _where(flags, values) for _ in range(frame.width)]


class _ReversedBody:
    """The manual computation of the cotangents; its body gets arguments as it needs them."""

    def __init__(self, op: Op) -> None:
        self.op, self.shardings = op, _Shardings(op)
        (self.primal,) = blocks(op.operation)
        self.frame = Reverse(op.frame.diff, self._primal, op.frame.linear, hands_on=True)
        arguments = list(self.primal.arguments)
        self.frame.analyze(self.primal, _where(op.active, arguments))
        self.leaves = dict(zip(arguments, self.shardings.operands, strict=True))
        self.operands: list[Value] = []
        self.lie: list[Any] = []
        self.draft = build.emit(op.name, (), (), regions=1)
        self.block = self.draft.regions[0].blocks.append()

    def _primal(self, v: Value) -> Value:
        return self.residuals(v)

    def _leaf(self, v: Value) -> Value | None:
        """Return the argument for one of the primal body, and zeros for an array without elements.

        XLA rejects a body whose arguments are all empty.
        """
        if 0 in build.shape(v):
            return build.zeros(v.type)
        if v not in self.leaves:
            return None
        return self._argument(v.type, self.op.operand(v.arg_number), self.leaves[v])

    def _argument(self, type: Any, operand: Value, sharding: Any) -> Value:
        """Add an argument to the backward body, for this operand with this sharding."""
        self.operands.append(operand)
        self.lie.append(sharding)
        return self.block.add_argument(type, self.op.operation.location)

    def run(self, cts: Tangents) -> list[Value | None]:
        op, shardings = self.op, self.shardings
        with build.inserting(ir.InsertionPoint(self.block)):
            current, stores_all = self.frame.current, self.frame.diff.stores_all
            self.residuals = Residuals(self.primal, self._leaf, current, stores_all)
            self._seed(cts)
            self.frame.run()
            self.frame.assert_carried(self.leaves)
            found = [self.frame.cotangent(a) for a in self.leaves]
            pairs = zip(found, shardings.operands, strict=True)
            build.emit(
                "sdy.return",
                (),
                [_sum(ct, shardings.copies(s)) for ct, s in pairs if ct is not None],
            )
        self.residuals.settle(self._stored())
        flags = [ct is not None for ct in found]
        types = [
            build.with_element(v.type, build.info(ct.type).element)
            for v, ct in zip(op.operands, found, strict=True)
            if ct is not None
        ]
        new = build.emit(
            op.name,
            types,
            self.operands,
            shardings.attributes(
                self.lie, list(map(_of_cotangent, _where(flags, shardings.operands)))
            ),
            regions=1,
        )
        self.block.append_to(new.regions[0])
        erase(self.draft)
        return scatter(flags, list(new.results))

    def _seed(self, cts: Tangents) -> None:
        outs = terminator(self.primal).operands
        for out, ct, sharding in zip(outs, cts, self.shardings.results, strict=True):
            if ct is not None:
                type = build.with_element(out.type, build.info(ct.type).element)
                mine = self._argument(type, ct, _of_cotangent(sharding))
                copies = len(self.shardings.copies(sharding)[0])
                self.frame.seed(out, mine if copies == 1 else build.mul(mine, 1.0 / copies))

    def _stored(self) -> dict[Value, Value]:
        """Let the primal body return the residuals; return them as the backward body reads them."""
        op, shardings = self.op, self.shardings
        chosen = self.residuals.choose(self.frame.compared)
        if not chosen:
            return {}
        end = terminator(self.primal)
        with build.inserting(ir.InsertionPoint(end), end.location):
            rows = [_as_row(self.frame.current(v)) for v in chosen]
        replace_terminator(self.primal, [*end.operands, *rows])
        lie = [shardings.stacked(v) for v in rows]
        with before(op):
            new = build.emit(
                op.name,
                [*(r.type for r in op.results), *map(shardings.type_of_stack, rows)],
                list(op.operands),
                shardings.attributes(shardings.operands, shardings.results + lie),
                regions=1,
            )
        self.primal.append_to(new.regions[0])
        results = list(new.results)
        count = len(op.results)
        op.frame.replace(op, results[:count])
        with build.inserting(self.residuals.ip):
            return {
                v: build.reshape(
                    self._argument(row.type, op.frame.primal(stack), sharding), build.shape(v)
                )
                for v, row, stack, sharding in zip(chosen, rows, results[count:], lie, strict=True)
            }


def _of_cotangent(sharding: Any) -> Any:
    """Return the sharding of a cotangent: each term of an undone sum has that of the sum."""
    return summed(sdy.TensorShardingAttr(sharding))


def _as_row(v: Value) -> Value:
    return build.reshape(v, (1, *build.shape(v)))


def _sum(ct: Value, groups: list[list[int]]) -> Value:
    """Sum over groups of devices; return `ct` itself if each device is alone."""
    if len(groups[0]) == 1:
        return ct
    attributes = {
        "replica_groups": build.i64_rows(groups, len(groups[0])),
        "channel_handle": build.attr("#stablehlo.channel_handle<handle = 1, type = 1>"),
        "use_global_device_ids": build.attr("unit"),
    }
    return added(ct, attributes, ct.type, "stablehlo.all_reduce")
