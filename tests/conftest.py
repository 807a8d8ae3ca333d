"""What all tests share: how XLA compiles, how many of them run, and what memory they keep."""

from __future__ import annotations

import collections
import contextlib
import ctypes
import difflib
import gc
import importlib.metadata
import os
from pathlib import Path

import pytest
from hypothesis import settings

# Small programs that run once: nearly all the time would go into LLVM's optimisations.
FAST_COMPILATION = [
    "--xla_backend_optimization_level=0",
    "--xla_llvm_disable_expensive_passes",
    "--xla_cpu_parallel_codegen_split_count=1",
]
if importlib.metadata.version("jaxlib").startswith("0.10."):  # later ones have no such flag
    FAST_COMPILATION.append("--xla_cpu_use_fusion_emitters=false")
os.environ.setdefault("XLA_FLAGS", " ".join(FAST_COMPILATION))

# With JAX_COMPILATION_CACHE_DIR set, all that is compiled is kept for the next run: see Makefile.
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")

# Folders whose tests say how JAX traces, lowers and differentiates: `--thin` leaves them whole.
ABOUT_JAX = [Path(__file__).parent / folder for folder in ("conformance", "_jax", "frontend")]

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
    some = "of the cases of each test run one in N, and the first of each op"
    parser.addoption("--thin", type=int, default=1, metavar="N", help=some)
    parser.addoption("--op", metavar="NAME", help="run the tests of one op, such as stablehlo.sine")
    kinds = ["handles", "keys"]
    more = "check each use of a handle to IR; with `keys` also those in tables, which is slow"
    parser.addoption("--erased", choices=kinds, help=more)


def pytest_configure(config):
    """Of random programs, one in N is tried as well."""
    examples = max(60 // config.getoption("--thin"), 1)
    settings.register_profile("thinned", max_examples=examples)
    settings.load_profile("thinned")


def pytest_collection_modifyitems(config, items):
    op, step = config.getoption("--op"), config.getoption("--thin")
    if op is not None:
        chosen = [item for item in items if op_of(item) == op]
        if not chosen:
            raise unknown_op(op, items)
    else:
        chosen = thinned(items, step)
    left_out = set(items) - set(chosen)
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = chosen


def thinned(items, step):
    """One in so many of the cases of each test, spread out, and the first of each op.

    A test has its first case, so whatever has a test is touched. Those marked `whole` have all, and
    so have those that are about JAX, which may change with each version of it.
    """
    chosen, numbers, ops = [], collections.Counter(), set()
    for item in items:
        op = item.function, op_of(item)
        is_first = op[1] is not None and op not in ops
        ops.add(op)
        if numbers[item.function] % step == 0 or is_first or is_whole(item):
            chosen.append(item)
        numbers[item.function] += 1
    return chosen


def is_whole(item):
    """True if all cases of a test run, however thin the others."""
    return item.get_closest_marker("whole") or any(map(item.path.is_relative_to, ABOUT_JAX))


def op_of(item):
    """The op whose rule a test is about, if it is about one: that of its case, or named."""
    callspec = getattr(item, "callspec", None)
    if callspec is None:
        return None
    op = getattr(callspec.params.get("case"), "op", callspec.params.get("op"))
    return op.strip() if isinstance(op, str) else None


def unknown_op(op, items):
    known = sorted({name for name in map(op_of, items) if name})
    like = difflib.get_close_matches(op, known)
    meant = f": did you mean {' or '.join(like)}?" if like else ""
    return pytest.UsageError(f"no tests of the op {op!r}{meant}\nthere are: {' '.join(known)}")
