"""What `pb.torch` says where torch is not installed; with it, `make torch` runs the rest."""

from __future__ import annotations

import importlib.util
import sys

import pytest

import pullback as pb


@pytest.mark.parametrize(
    "call", [lambda: pb.torch.trace(None, ()), lambda: pb.torch.parameters(None)]
)
@pytest.mark.parametrize(
    ("missing", "words"),
    [
        ({"torch", "torchax"}, "pullback.torch needs torch and torchax, which are not installed"),
        ({"torchax"}, "pullback.torch needs torchax, which is not installed"),
    ],
)
def test_the_error_says_what_to_install(call, missing, words, monkeypatch):
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name in missing else "found"
    )
    with pytest.raises(pb.PullbackError) as raised:
        call()
    assert raised.value.message == words
    assert raised.value.do.startswith("pip install")
    assert "pullback[torch]" in raised.value.do


def test_the_module_is_imported_without_torch():
    assert pb.torch.__name__ == "pullback.torch"
    assert "torch" not in sys.modules
