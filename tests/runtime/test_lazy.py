"""Items that are made when the first of them is asked for, and what is kept."""

from __future__ import annotations

import threading
import time
import weakref

from pullback_runtime._lazy_values import Lazy, Recent
from tests.rules.processes import run_python


def test_the_length_is_known_before_an_item_is_made() -> None:
    made: list[int] = []
    lazy = Lazy(2, lambda: made.append(1) or ["a", "b"])
    assert len(lazy) == 2
    assert bool(lazy)
    assert not made
    assert lazy[1] == "b"
    assert [*lazy, *lazy] == ["a", "b"] * 2
    assert tuple(lazy) == ("a", "b")
    assert made == [1]


def test_many_threads_make_the_items_once() -> None:
    made: list[int] = []

    def make() -> list[int]:
        time.sleep(0.01)
        made.append(1)
        return [7]

    lazy = Lazy(1, make)
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.extend(lazy)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [7] * 8
    assert made == [1]


def test_what_the_items_were_made_of_is_let_go() -> None:
    class Source:
        pass

    source = Source()
    gone = weakref.ref(source)
    lazy = Lazy(1, lambda source=source: [id(source)])
    del source
    assert gone() is not None
    assert lazy[0]
    assert gone() is None


AT_ONCE = """
import threading
from concurrent.futures import ThreadPoolExecutor
from pullback import _jax
from pullback_runtime import _jax as runtime_jax

def asked(context):
    together.wait()
    return context()

for context in (_jax.context, runtime_jax.context):
    together = threading.Barrier(8)
    with ThreadPoolExecutor(8) as pool:
        assert len({id(found) for found in pool.map(asked, [context] * 8)}) == 1
"""


def test_threads_that_begin_together_share_one_context() -> None:
    """Values of two contexts must not meet: derivatives failed, or the process ended."""
    run_python("-c", AT_ONCE)


def test_what_was_asked_for_longest_ago_makes_room() -> None:
    recent = Recent(2)
    assert not recent
    assert recent.keep("a", 1) == 1
    assert recent.keep("b", 2) == 2
    assert recent.get("a") == 1
    recent.keep("c", 3)
    assert recent.get("b") is None
    assert [recent.get("a"), recent.get("c"), len(recent)] == [1, 3, 2]
    recent.clear()
    assert not recent


def test_what_the_first_thread_kept_is_what_others_get() -> None:
    recent = Recent(2)
    first, second = object(), object()
    assert recent.keep("a", first) is first
    assert recent.keep("a", second) is first
    assert recent.get("a") is first
