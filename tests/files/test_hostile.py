"""Files with changed bytes and a right digest: they may be read or not, and the process lives."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb
import pullback_runtime
from pullback import artifact
from pullback_runtime import _open
from pullback_runtime.engine import _engines
from pullback_runtime.files import _constants, _container, _portable, _safe_parse, _symbolic
from tests.files import hostile, models
from tests.files.edited import edited
from tests.work import layers_of

SEEDS = 300


@pytest.fixture(autouse=True)
def own_helper():
    _safe_parse.stop()
    yield
    _safe_parse.stop()


def test_a_process_lives_that_reads_hostile_files():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-m", "tests.files.hostile", "0", str(SEEDS)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.startswith(f"{SEEDS} ")


@pytest.mark.parametrize("kind", hostile.MAKERS)
@pytest.mark.parametrize("reader", hostile.READERS)
def test_the_same_files_are_read_when_they_are_sound(kind, reader):
    content = hostile.sealed(bytearray(hostile.sound(kind)))
    assert content == hostile.sound(kind)
    if (kind, reader) != ("symbols", "without JAX"):
        hostile.READERS[reader](content)


def test_a_trusted_file_is_parsed_here():
    content = artifact.serialize(models.program())

    def is_sent(load):
        names = {name for _, name in layers_of(load).functions}
        return not names.isdisjoint({"start", "parse_elsewhere"})

    assert str(pb.load(content, trusted=True)) == str(models.program().stage_rules())
    for load in (pb.load, pullback_runtime.load):
        assert not is_sent(lambda load=load: str(load(content, trusted=True)))
        assert is_sent(lambda load=load: str(load(content)))


def ask(monkeypatch, first: str, seconds: int = 10) -> str:
    """The error of a load by a helper that does something else before it parses."""
    code = f"from pullback_runtime import _mlir; {first}; "
    begin, end = _safe_parse._START.split("from pullback_runtime", 1)
    monkeypatch.setattr(_safe_parse, "_START", f"{begin}{code}from pullback_runtime{end}")
    monkeypatch.setattr(_safe_parse, "SECONDS", seconds)
    with pytest.raises(pb.ArtifactError) as caught:
        pb.load(artifact.serialize(pb.trace(jnp.sin)(1.0)))
    return caught.value.message


WITHOUT_FORK = "import os; del os.fork"


@pytest.mark.parametrize("before", ["pass", WITHOUT_FORK], ids=["fork", "no fork"])
def test_a_parser_that_crashes_hangs_or_refuses(monkeypatch, before):
    """Where there is no fork, as on Windows, the helper ends, and another one is started."""
    crash = f"{before}; _mlir.parse = lambda *_: __import__('os').abort()"
    assert "the file crashes the parser" in ask(monkeypatch, crash)
    _safe_parse.stop()
    monkeypatch.undo()
    hang = f"{before}; _mlir.parse = lambda *_: __import__('time').sleep(60)"
    begin = time.monotonic()
    assert "the file does not parse within 1 seconds" in ask(monkeypatch, hang, seconds=1)
    assert time.monotonic() - begin < 30
    _safe_parse.stop()
    monkeypatch.undo()
    refuse = f"{before}; _mlir.parse = lambda *_: 1 / 0"
    assert "the file does not parse: ZeroDivisionError" in ask(monkeypatch, refuse)


def test_files_load_one_after_the_other_without_fork(monkeypatch):
    monkeypatch.setattr(_safe_parse, "_START", f"{WITHOUT_FORK}; {_safe_parse._START}")
    content = artifact.serialize(pb.trace(jnp.sin)(1.0))
    assert [pb.load(content)(0.0) for _ in range(3)] == [0, 0, 0]


def test_a_helper_that_has_ended_is_replaced():
    content = artifact.serialize(pb.trace(jnp.sin)(1.0))
    pb.load(content)
    first = _safe_parse.start()
    pb.load(content)
    assert _safe_parse.start() is first
    for wait in [True, False] * 3:  # its end is seen before the request, or by it
        before = _safe_parse.start()
        before.kill()
        if wait:
            before.wait()
        assert pb.load(content)(0.0) == 0
        assert _safe_parse.start() is not before
        assert before.stdin.closed
        assert before.stdout.closed


def test_a_helper_that_does_not_start(monkeypatch):
    said = ask(monkeypatch, "raise SystemExit")
    assert said == "the helper process that tries files of unknown origin ended: it did not start"


FORKED = """
import os
from pullback_runtime.files import _safe_parse
content = _safe_parse.parse_elsewhere(b"module {}")
assert _safe_parse._process
if (child := os.fork()) == 0:
    os._exit(3 if _safe_parse._process is None else 4)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), bool(_safe_parse._process))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes do not fork here")
def test_a_forked_process_has_a_helper_of_its_own():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", FORKED]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "3 True\n", done.stderr


def written() -> int:
    """The bytes that this process has written to files and pipes."""
    counts = Path("/proc/self/io").read_text().split()
    return int(counts[counts.index("wchar:") + 1])


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="this system does not count bytes")
def test_large_constants_are_not_sent_to_the_helper():
    content = hostile.sound("constants")
    before, x = written(), np.float32(0.5)
    loaded = pb.load(content)
    assert 0 < written() - before < 1 << 14
    assert loaded(x) == hostile.with_constants()(x)
    assert len(content) > 16 << 20


def test_the_text_of_a_stub_in_a_file_is_not_parsed():
    """It would be parsed here: so it is spelt anew, by the type of the array."""
    content = hostile.sound("constants")
    described = _container.read_layout(content).metadata[_constants.METADATA]
    changed = [(n, s, "dense<" + "[" * 100_000, *d) for n, s, _, *d in described]
    x = np.float32(0.5)
    loaded = pb.load(edited(content, **{_constants.METADATA: changed}))
    assert loaded(x) == hostile.with_constants()(x)


def test_an_engine_gets_what_the_helper_has_written(monkeypatch):
    content = artifact.serialize(models.program())
    asked = []
    parse = _safe_parse.parse_elsewhere
    monkeypatch.setattr(
        _safe_parse, "parse_elsewhere", lambda *given: asked.append(parse(*given)) or asked[-1]
    )
    engine = _engines.open_engine("jax", None, "cpu")
    args, kwargs = models.arguments()
    for trusted in (True, False):
        whole = _portable.read_whole(content, trusted=trusted)
        found = _portable.open_portable(whole, engine)(*args, **kwargs)
        assert found["loss"] == pytest.approx(float(models.loss(*args, **kwargs)["loss"]))
    (written,) = asked
    layouts = [_container.read_layout(each) for each in (written, content)]
    assert layouts[0].stablehlo_version == layouts[1].stablehlo_version


def test_a_hostile_file_does_not_end_a_process_that_compiles_it_ahead_of_time(tmp_path):
    content = hostile.hostile(50)  # it ends a process that trusts it
    with pytest.raises(pullback_runtime.ArtifactError):
        _open.save_executable(content, tmp_path / "model.exe")


@pytest.mark.parametrize("text", ["9^99999999", "b^123456789", "2 ^9 + b"])
def test_a_size_that_takes_forever_to_compute_is_refused(text):
    types = {"in_avals": [["float32", "b"]], "out_avals": []}
    with pytest.raises(pullback_runtime.ArtifactError, match=r"the power '.*' is too high"):
        _symbolic.signature({"constraints": [f"{text} >= 2"], **types})
    assert _symbolic.signature({"constraints": ["b2^12 >= 2", "a^2*b >= 3"], **types})
