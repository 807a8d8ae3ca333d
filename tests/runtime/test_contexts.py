"""Contexts of MLIR are shared until they keep much; then they go with what was made in them."""

from __future__ import annotations

import gc
import weakref

import pytest

from pullback_runtime import _jax
from pullback_runtime.ir import _contexts, _module
from pullback_runtime.ir._contexts import Shared, cached

TEXT = b"func.func @main(%x: tensor<f32>) -> tensor<f32> { return %x : tensor<f32> }"


@pytest.fixture
def shared(monkeypatch) -> Shared:
    monkeypatch.setattr(_contexts, "MOST", 2 * len(TEXT))
    monkeypatch.setattr(_contexts, "_all", [])
    monkeypatch.setattr(_contexts, "_forget", [])
    return Shared(_jax.fresh_context)


def test_a_context_is_shared_until_it_keeps_much(shared) -> None:
    first = shared()
    for _ in range(2):
        _module.parse(TEXT, shared())
        assert shared() is first
    last = _module.parse(TEXT, shared())
    assert shared() is not first
    assert last.context is first
    gone = weakref.ref(first)
    del first, last
    gc.collect()
    assert gone() is None


def test_what_other_contexts_keep_does_not_count(shared) -> None:
    first, other = shared(), _jax.fresh_context()
    for _ in range(4):
        _module.parse(TEXT, other)
    assert shared() is first


def test_what_is_cached_of_a_context_does_not_keep_it(shared) -> None:
    @cached
    def parsed(text: str) -> _jax.ir.Type:
        return _jax.ir.Type.parse(text, shared())

    assert parsed("f32") is parsed("f32")
    gone = weakref.ref(shared())
    _contexts.keeps(shared(), 3 * len(TEXT))
    assert shared() is parsed("f32").context
    gc.collect()
    assert gone() is None
