"""What all tests share: how XLA compiles, how much of a sweep runs, and what memory is kept."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib.metadata
import os
from pathlib import Path

import pytest
from hypothesis import settings

# Small programs that run once: nearly all the time would go into LLVM's optimisations.
FAST_COMPILATION = ["--xla_backend_optimization_level=0", "--xla_llvm_disable_expensive_passes"]
if importlib.metadata.version("jaxlib").startswith("0.10."):  # later ones have no such flag
    FAST_COMPILATION.append("--xla_cpu_use_fusion_emitters=false")
os.environ.setdefault("XLA_FLAGS", " ".join(FAST_COMPILATION))

# With two threads, XLA's CPU client may wait for ever: JAX's QR of large complex matrices does.
os.environ.setdefault("NPROC", "8")


@pytest.fixture
def float64():
    """The test runs with arrays of 64 bits."""
    import jax  # what is above has to be said first

    with jax.enable_x64(True):
        yield


@pytest.fixture
def watch():
    """The test fails where it uses a handle to IR that was erased."""
    with watched() as found:
        yield found


@pytest.fixture(autouse=True)
def _watch_if_asked(request):
    asked = request.config.getoption("--erased")
    about_memory = request.path.name == "test_lifetimes.py"  # which the checks keep
    if asked is None or about_memory or "watch" in request.fixturenames:
        yield
        return
    with watched(keys=asked == "keys"):
        yield


@contextlib.contextmanager
def watched(**options):
    from tests import erased

    with erased.watching(**options) as watch:
        yield watch
    assert not watch.found, "\n".join(dict.fromkeys(watch.found))


@pytest.fixture(autouse=True)
def _little_memory():
    yield
    MEMORY.limit()


class Memory:
    """What a process of tests keeps: JAX's caches hold what it compiled, 1.5 MB a function."""

    GROWTH = 1 << 29

    def __init__(self):
        self.most = 2 * self.GROWTH

    def limit(self):
        """Empties the caches where the process has grown by half a GiB since it last did."""
        if resident() < self.most:
            return
        import jax

        jax.clear_caches()
        gc.collect()
        if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):  # glibc keeps what is freed
            trim(0)
        self.most = max(self.most, resident() + self.GROWTH)


MEMORY = Memory()


def resident():
    """The bytes of this process in memory; 0 on systems that do not say it so."""
    try:
        pages = Path("/proc/self/statm").read_text().split()[1]
    except OSError:
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def pytest_addoption(parser):
    parser.addoption("--thin", type=int, default=1, metavar="N", help="run each Nth of a sweep")
    kinds = ["handles", "keys"]
    more = "check each use of a handle to IR; with `keys` also those in tables, which is slow"
    parser.addoption("--erased", choices=kinds, help=more)


def pytest_configure(config):
    """Of random programs, one in N is tried as well."""
    settings.register_profile("thinned", max_examples=60 // config.getoption("--thin"))
    settings.load_profile("thinned")


def pytest_collection_modifyitems(config, items):
    """Of tests marked `sweep`, one in N runs: those of one function are spread out."""
    step = config.getoption("--thin")
    met: dict[object, int] = {}
    left_out = []
    for item in items if step > 1 else ():
        if item.get_closest_marker("sweep"):
            number = met[item.function] = met.get(item.function, -1) + 1
            if number % step:
                left_out.append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]
