"""Serialize a module and its metadata as a file, for a version of StableHLO."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import jax

from pullback import _jax
from pullback._jax import ir
from pullback.files import embedded_constants
from pullback.files.errors import ArtifactError, NotPortableError, as_ours, check_valid
from pullback.frontend import callbacks
from pullback.ir import locations, purity, symbols
from pullback.ir.modules import clone
from pullback.program.record import AnyProgram
from pullback_runtime import __version__, _jax as runtime_jax
from pullback_runtime.call import _jax_trees, _meshes
from pullback_runtime.call._arguments import spell
from pullback_runtime.files import _constants, _container, _signature
from pullback_runtime.files._artifact import version_numbers

OLDEST_TARGET = (1, 0, 0)
ACCURACY = "result_accuracy"
ACCURACIES_SINCE = (1, 10, 0)  # that of `exponential` since 1.9.0
CALLS = tuple(symbols.CALLS)
OF_EQUINOX = re.compile(r"\bequinox[/\\]")
EXPAND_FOR = "stablehlo-compatibility-expander"


def versions() -> dict[str, str]:
    """Return the versions of pullback and JAX, to be written into a file."""
    return {"pullback": __version__, "jax": jax.__version__}


def described_trees(program: AnyProgram) -> dict[str, Any]:
    """Return descriptions of a program's arguments and result: their trees, and the leaves' types.

    The module has the types as well, but it takes MLIR to read them there.
    """
    sides = program.in_avals, program.out_avals
    with as_ours():
        trees = {"in_tree": program.in_tree, "out_tree": program.out_tree}
        described = {side: _jax_trees.describe(tree) for side, tree in trees.items()}
    return {**described, _signature.METADATA: [list(map(spell, avals)) for avals in sides]}


def refuse_callbacks(module: ir.Module) -> None:
    """Raise NotPortableError, naming the first one, for a module that calls back into Python."""
    attributes = module.operation.attributes
    if callbacks.ATTRIBUTE in attributes:
        notes = [str(note.value) for note in attributes[callbacks.ATTRIBUTE]]
        raise _not_portable(notes[0].partition(" at ")[0], notes)
    for op in runtime_jax.operations_named(module, "stablehlo.custom_call"):
        if name := purity.callback(op):
            place = locations.called_at(locations.user_line_of(op), _own_line(module, op))
            raise _not_portable(name, [place or f"the function `@{_around(op)}` of the module"])


def _around(op: ir.Operation) -> str:
    """Return the name of the function that an op is in."""
    while op.name != symbols.FUNC:
        op = op.parent.operation
    return symbols.symbol(op)


def _own_line(module: ir.Module, op: ir.Operation) -> str | None:
    """Return the user's line of an op, or else of a call of the function that it is in."""
    calls = {symbols.called(call): call for call in runtime_jax.operations_named(module, *CALLS)}
    while (own := locations.own_line_of(op)) is None:
        if (call := calls.pop(_around(op), None)) is None:
            return None
        op = call
    return own


def refuse_callbacks_in(jaxpr: Any) -> None:
    """Raise NotPortableError, naming the first one, for a function that calls back into Python."""
    notes = list(dict.fromkeys(callbacks.callbacks_in(jaxpr)))
    if notes:
        raise _not_portable(notes[0].partition(" at ")[0], notes)


def _not_portable(name: str, places: Sequence[str]) -> NotPortableError:
    return NotPortableError(
        f"a program with `{name}` cannot be saved: it calls Python in this process",
        where=", ".join(places),
        do="; ".join(dict.fromkeys(map(_remedy, places))),
    )


def _remedy(place: str) -> str:
    if not OF_EQUINOX.search(place):
        return "remove the callback or debug print, or put it outside the traced function"
    return (
        "set EQX_ON_ERROR=nan in the environment before Python starts: then checks of Equinox's, "
        "which Lineax, Optimistix and Diffrax make as well, give NaN where they fail"
    )


def sealed(
    module: ir.Module,
    embedding: embedded_constants.Embedding,
    description: dict[str, Any],
    target: str | None,
) -> list[Any]:
    """Return the content of a file in pieces, with its digest."""
    content = _portable(module, embedding, description, target)
    try:
        return _container.seal_pieces(_constants.put_in(content, embedding.stored()))
    except _constants.AmbiguousStub:  # another constant has the bytes of a stub
        whole = _portable(module, embedding.without_stubs(), description, target)
        return _container.seal_pieces([whole])


def _portable(
    module: ir.Module,
    embedding: embedded_constants.Embedding,
    description: dict[str, Any],
    target: str | None,
) -> bytes:
    """Serialize for the first version of StableHLO that can hold the module."""
    failures = []
    if described := embedding.describe():
        description = {**description, _constants.METADATA: described}
    context = module.context
    sharded = bool(_meshes.shardings(module))
    for version in _targets(target):
        copy = clone(module)  # serialising changes it
        if target is not None:
            _expand(copy, version)  # before there are stubs, which must not be folded
        embedding.embed(copy)
        _attach(copy, {**description, "stablehlo": version})
        # neither writing VHLO nor loading what a save wrote verifies StableHLO's ops
        check_valid(
            copy,
            "the program is not valid",
            do="if nothing else than pullback has edited its module, report this",
        )
        diagnostics = _Diagnostics(context)
        try:
            with context, ir.Location.unknown(context):
                return _jax.stablehlo.serialize_portable_artifact(copy, version, sharded)
        except (ir.MLIRError, ValueError):
            failures.append(f"StableHLO {version}: {diagnostics.first()}")
        finally:
            diagnostics.detach()
    raise ArtifactError(
        "the program does not fit the StableHLO version it is saved for",
        where="; ".join(failures),
        do=f"save with a newer target=, up to {_jax.stablehlo.get_current_version()!r}",
    )


def _expand(module: ir.Module, version: str) -> None:
    """Replace, in place, what a version of StableHLO lacks, such as `tan` and ranges as locations.

    A reader older than 1.9 fails on such locations, although it accepts the versions of all ops.
    """
    if version_numbers(version) < ACCURACIES_SINCE:
        _drop_highest_accuracies(module)
    runtime_jax.run_passes(module, f"builtin.module({EXPAND_FOR}{{target={version}}})")


def _drop_highest_accuracies(module: ir.Module) -> None:
    """Remove requests for the highest accuracy, for versions that lack `result_accuracy`.

    They set no tolerance, unlike others; JAX makes one in the derivative of `erf`.
    """
    for op in runtime_jax.operations_where(
        module, lambda op: "HIGHEST" in str(op.attributes.get(ACCURACY))
    ):
        del op.attributes[ACCURACY]


def _attach(module: ir.Module, description: dict[str, Any]) -> None:
    """Set the metadata, and a placeholder for the digest, as attributes of the module."""
    attributes = module.operation.attributes
    with module.context:
        text = ir.StringAttr.get(_container.dump_metadata(description))
        attributes[_container.METADATA_ATTRIBUTE] = text
        placeholder = ir.StringAttr.get(_container.DIGEST_PLACEHOLDER)
        attributes[_container.DIGEST_ATTRIBUTE] = placeholder


class _Diagnostics:
    """Collects MLIR's diagnostics, which would go to standard error."""

    def __init__(self, context: ir.Context):
        self.messages: list[str] = []
        self._handler = context.attach_diagnostic_handler(self._take)

    def _take(self, diagnostic: Any) -> bool:
        line = locations.user_line(diagnostic.location) or locations.UNKNOWN
        self.messages.append(f"{diagnostic.message.partition(': %')[0][:200]} ({line})")
        return True

    def first(self) -> str:
        return self.messages[0] if self.messages else "MLIR gives no reason"

    def detach(self) -> None:
        self._handler.detach()
        del self._handler  # it holds this object, which Python does not see


def oldest_compatible_version() -> str:
    """Return the StableHLO version of twelve weeks before this jaxlib, which JAX exports for."""
    window = _jax.stablehlo.StablehloCompatibilityRequirement.WEEK_12
    return _jax.stablehlo.get_version_from_compatibility_requirement(window)


def _targets(target: str | None) -> list[str]:
    """Return the StableHLO versions to try, in this order."""
    if target is not None:
        return [_checked(target)]
    current = _jax.stablehlo.get_current_version()
    return list(dict.fromkeys([oldest_compatible_version(), current]))


def _checked(target: str) -> str:
    current = _jax.stablehlo.get_current_version()
    try:
        numbers = version_numbers(target)
    except ValueError:
        numbers = ()
    if len(numbers) == 3 and OLDEST_TARGET <= numbers <= version_numbers(current):
        return target
    raise ArtifactError(
        f"cannot save for StableHLO {target!r}: this jaxlib writes 1.0.0 to {current}",
        do="leave target= out, or name a version in this range",
    )
