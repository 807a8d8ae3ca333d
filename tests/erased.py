"""Raises at each use of a handle to IR that was erased: `--erased handles`, or fixture `watch`.

A handle of MLIR's bindings does not know that its operation is gone. Here every method of handles
asks first, and what is erased is never freed, so that no address belongs to two things. A use is
noted as well as raised: code around it may catch the error. Behind each stage of a pipeline MLIR's
verifier runs, which finds values that are used where they are not defined.

With `keys` instead, as the fixture has it, each key of a table is compared with what the table is
asked for, so that one which was erased is found: that is for small programs.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from pullback.passes import manager
from pullback_runtime._jax import ir
from pullback_runtime.ir import _erasure

_OPERATION, _VALUE, _BLOCK = ir.Operation.__base__, ir.Value, ir.Block
_KINDS = {
    ir.Operation: _OPERATION,
    _OPERATION: _OPERATION,
    ir.Value: _VALUE,
    ir.OpResult: _VALUE,
    ir.BlockArgument: _VALUE,
    ir.Block: _BLOCK,
}
_OF_REPLACED = {
    _OPERATION: {"name", "attributes", "location", "result", "results", "operation", "__eq__"},
    _VALUE: {"type", "uses", "replace_all_uses_with", "owner", "maybe_downcast"},
}
"""What may be asked of an operation that another one has replaced, and of its results."""
_OF_REPLACED[_VALUE] |= {"__eq__", "__hash__", "result_number"}

_CAPSULES = {
    _OPERATION: (_OPERATION._CAPIPtr.fget, b"jaxlib.mlir.ir.Operation._CAPIPtr"),
    _VALUE: (ir.Value._CAPIPtr.fget, b"jaxlib.mlir.ir.Value._CAPIPtr"),
    _BLOCK: (ir.Block._CAPIPtr.fget, b"jaxlib.mlir.ir.Block._CAPIPtr"),
}
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_LEFT_ALONE = {"__new__", "__init__", "__class_getitem__", "__doc__", "__module__", "_CAPIPtr"}


class UsedAfterErasure(AssertionError):
    """A handle is used, and its operation, argument or block was erased."""


class Watch:
    """Notes what is erased, and keeps it.

    Attributes:
      erasures: how many operations and arguments were erased.
      found: every use of a handle of one.
    """

    def __init__(self, keys: bool) -> None:
        self.keys = keys
        self.erasures = 0
        self.found: list[str] = []
        self._dead: dict[tuple[Any, int], tuple[str, bool]] = {}
        self._kept: list[Any] = []

    # ---------------------------------------------------------- what `_erasure` calls

    def erased(self, operation: Any, stays_key: bool) -> None:
        self.erasures += 1
        if (_OPERATION, _address(_OPERATION, operation)) in self._dead:
            self._report(f"`{operation.name}` is erased twice, {_place()}")
        why = f"`{operation.name}` was erased {_place()}"

        def note(each: Any) -> Any:
            key = stays_key and each == operation
            self._note(_OPERATION, each, why, key)
            for result in each.results:
                self._note(_VALUE, result, why, key)
            for block in (block for region in each.regions for block in region.blocks):
                self._note(_BLOCK, block, why)
                for argument in block.arguments:
                    self._note(_VALUE, argument, why)
            return ir.WalkResult.ADVANCE

        operation.walk(note)

    def erase_argument(self, block: Any, index: int) -> None:
        """Erase it, and let another one that nobody uses take its address."""
        self.erasures += 1
        argument = block.arguments[index]
        address, type, loc = _address(_VALUE, argument), argument.type, argument.location
        why = f"an argument of `{block.owner.name}` was erased {_place()}"
        plug = ir.Operation.create("builtin.module", regions=1, loc=loc, ip=False)
        self._kept.append(plug)
        plugs = plug.regions[0].blocks.append(arg_locs=[])
        block.erase_argument(index)
        for _ in range(64):
            if _address(_VALUE, plugs.add_argument(type, loc)) == address:
                self._dead[_VALUE, address] = why, False
                return

    def freed(self, grave: Any) -> None:
        """Keep it; nothing outside may use what is in it, at any depth."""
        self._kept.append(grave)
        inside, values = set(), []

        def note(each: Any) -> Any:
            inside.add(_address(_OPERATION, each))
            values.extend(each.results)
            for block in (block for region in each.regions for block in region.blocks):
                values.extend(block.arguments)
            return ir.WalkResult.ADVANCE

        grave.walk(note)
        for use in (use for v in values for use in v.uses):
            user = use.owner.operation
            if _address(_OPERATION, user) not in inside:
                self._report(f"`{user.name}` uses a value of a region that was erased")

    def _report(self, text: str) -> None:
        self.found.append(text)
        raise UsedAfterErasure(text)

    def _note(self, kind: Any, handle: Any, why: str, stays_key: bool = False) -> None:
        self._dead[kind, _address(kind, handle)] = why, stays_key

    # ------------------------------------------------------------- what handles call

    def check(self, kind: Any, handle: Any, name: str) -> None:
        """Raise UsedAfterErasure if the handle is of something that was erased."""
        why, stays_key = self._dead.get((kind, _address(kind, handle)), (None, False))
        if why is None or (stays_key and name in _OF_REPLACED[kind]):
            return
        if sys._getframe(2).f_globals["__name__"] in (_erasure.__name__, __name__):
            return
        self._report(f"{why}, and `{name}` is asked of it {_place()}")


def _address(kind: Any, handle: Any) -> int:
    get, name = _CAPSULES[kind]
    return _pointer(get(handle), name)


def _place() -> str:
    """Where the code under test is."""
    frames = traceback.extract_stack(limit=30)
    own = {__file__, _erasure.__file__}
    ours = [f"{f.filename}:{f.lineno}, {f.name}" for f in frames if f.filename not in own]
    return "at " + " < ".join(reversed(ours[-4:]))


@contextlib.contextmanager
def watching(keys: bool = True) -> Iterator[Watch]:
    """Check all handles within, and with `keys` also those that are keys of tables."""
    watch = Watch(keys)
    with contextlib.ExitStack() as stack:
        for cls, kind in _KINDS.items():
            for name, member in list(vars(cls).items()):
                if name not in _LEFT_ALONE and not isinstance(member, staticmethod | classmethod):
                    checked = _checked(watch, kind, name, member)
                    if checked is not None:
                        stack.enter_context(_instead(cls, name, checked))
        stack.enter_context(_instead(manager, "run_stages", _verified(manager.run_stages)))
        stack.enter_context(_instead(_erasure, "watch", watch))
        yield watch


@contextlib.contextmanager
def _instead(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = vars(owner)[name]
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def _checked(watch: Watch, kind: Any, name: str, member: Any) -> Any:
    """A method or property that checks its handle; None for other members."""
    if isinstance(member, property):

        def get(self: Any) -> Any:
            watch.check(kind, self, name)
            return member.fget(self)

        return property(get, member.fset)
    if type(member).__name__ != "nb_method":
        return None

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        watch.check(kind, self, name)
        if watch.keys and name == "__hash__" and kind is _VALUE:
            return 0  # so that a table compares what it is asked for with each of its keys
        if name == "__eq__" and isinstance(args[0], kind):
            watch.check(kind, args[0], name)
        return member(self, *args, **kwargs)

    return method


def _verified(run_stages: Callable[..., None]) -> Callable[..., None]:
    def run(module: Any, stages: Any, *rules: Any) -> None:
        for stage in stages:
            run_stages(module, [stage], *rules)
            module.operation.verify()

    return run
