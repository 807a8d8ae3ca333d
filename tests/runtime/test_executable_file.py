"""Machine code in files: it runs where it fits, and is compiled again where it does not."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import pullback_runtime as runtime
from pullback_runtime.files import _executable_file, _portable
from tests.files import corpus
from tests.work import layers_of

GOLDEN = Path(__file__).parents[1] / "files" / "golden" / "format-1"
RECURRENT = GOLDEN / "recurrent.mlirbc"


@pytest.fixture(scope="module")
def executable(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("executable") / "model.exe"
    runtime.save_executable(RECURRENT, path, backend="cpu")
    return path


def compiles(function) -> bool:
    """True if JAX's engine compiles while a function runs."""
    return "JaxEngine.compile" in {name for _, name in layers_of(function).functions}


def check(program) -> None:
    arguments, results = corpus.stored(RECURRENT, "argument"), corpus.stored(RECURRENT, "result")
    corpus.agree(program.flat(*arguments), results)


def words(call, *args, **kwargs) -> str:
    with pytest.raises(runtime.PullbackRuntimeError) as raised:
        call(*args, **kwargs)
    return str(raised.value)


def test_it_runs_without_compiling(executable):
    program = runtime.load_executable(executable)
    assert not compiles(lambda: check(runtime.load_executable(executable)))
    assert "argument    weights: float32[3]" in program.describe()
    found = words(program, np.ones(3), np.ones(4))
    assert "argument 1 (inputs) has the wrong shape: expected float32[5]" in found


def test_it_runs_linear_algebra(tmp_path):
    path = GOLDEN / "solver.mlirbc"
    runtime.save_executable(path, tmp_path / "model.exe", backend="cpu")
    found = runtime.load_executable(tmp_path / "model.exe").flat(*corpus.stored(path, "argument"))
    corpus.agree(found, corpus.stored(path, "result"))


@pytest.mark.parametrize("name", ["jaxlib", "processor", "device", "driver", "something new"])
def test_code_for_another_place_is_never_run(executable, tmp_path, name):
    file = _executable_file.read(executable.read_bytes())
    here = file.identity.get(name, "none")
    broken = b"no machine code"  # which would not load
    other = _executable_file.ExecutableFile(
        {**file.identity, name: "of another kind"}, "main", file.program, broken
    )
    other.write(tmp_path / "other.exe")
    expected = f"it was made for {name} of another kind, and here is {here}"
    with pytest.warns(runtime.CompiledAgainWarning, match=expected):
        assert compiles(lambda: check(runtime.load_executable(tmp_path / "other.exe")))


def test_a_place_that_says_more_is_another_one(executable):
    file = _executable_file.read(executable.read_bytes())
    assert file.difference(file.identity) is None
    assert file.difference({**file.identity, "more": "x"}) == (
        "it was made for more none, and here is x"
    )


@pytest.mark.parametrize("place", [0, 21, 40, 70, 90, 3000, -1])
def test_each_changed_byte_is_noticed(executable, place):
    content = bytearray(executable.read_bytes())
    content[place] ^= 1
    found = words(runtime.load_executable, bytes(content))
    assert "machine code is damaged" in found or "this is no file of machine code" in found


@pytest.mark.parametrize("length", [0, 10, 30, 76, 1000])
def test_each_shorter_file_is_noticed(executable, length):
    content = executable.read_bytes()[:length]
    found = words(runtime.load_executable, content)
    assert "machine code is damaged" in found or "this is no file of machine code" in found
    assert "compile it again" in found


def test_load_takes_no_machine_code(executable):
    pullback = pytest.importorskip("pullback")
    for load in (runtime.load, pullback.load, _portable.read_whole):
        with pytest.raises(Exception, match="this is machine code") as raised:
            load(executable)
        assert isinstance(raised.value, runtime.ArtifactError | pullback.ArtifactError)
        assert "if you trust who made it: pullback_runtime.load_executable" in str(raised.value)
        assert f"where: {executable}" in str(raised.value)


def test_a_program_is_no_machine_code():
    found = words(runtime.load_executable, RECURRENT)
    assert "this is no file of machine code" in found
    assert "pullback_runtime.load reads programs" in found


def test_the_engine_of_the_file_has_to_be_here(executable, tmp_path):
    file = _executable_file.read(executable.read_bytes())
    identity = {**file.identity, "engine": "pjrt"}
    _executable_file.ExecutableFile(identity, "main", file.program, file.code).write(
        tmp_path / "other.exe"
    )
    with pytest.raises(runtime.PullbackRuntimeError) as raised:
        runtime.load_executable(tmp_path / "other.exe", plugin="nowhere.so")
    assert isinstance(raised.value, runtime.EngineNotFoundError | runtime.BackendNotFoundError)
    found = words(runtime.load_executable, executable, plugin="nowhere.so")
    assert "JAX finds its own plug-ins" in found
    assert "leave out plugin=" in found


def test_what_cannot_be_compiled_leaves_no_file(tmp_path):
    path = tmp_path / "model.exe"
    assert "no MLIR bytecode" in words(runtime.save_executable, b"module {}", path)
    assert "no backend 'tpu'" in words(runtime.save_executable, RECURRENT, path, backend="tpu")
    assert list(tmp_path.iterdir()) == []


def test_an_old_file_stays_where_a_new_one_cannot_be_written(executable, tmp_path, monkeypatch):
    path = tmp_path / "model.exe"
    path.write_bytes(b"old")
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        _executable_file.read(executable.read_bytes()).write(path)
    assert [each.read_bytes() for each in tmp_path.iterdir()] == [b"old"]


def test_the_head_of_the_file_is_readable(executable):
    start = len(_executable_file.MAGIC) + _executable_file.HEAD.size
    text = executable.read_bytes()[start:].decode("latin-1")
    head = json.JSONDecoder().raw_decode(text)[0]
    assert head["pullback"] == runtime.__version__
    assert head["identity"]["engine"] == "jax"
    assert {"platform", "jaxlib", "device", "processor"} <= set(head["identity"])


def test_machine_code_of_an_entry(tmp_path):
    pullback = pytest.importorskip("pullback")
    program = pullback.trace(lambda x: x * x)(1.0)
    pullback.save_all(tmp_path / "all.mlirbc", energy=program, forces=program.grad())
    runtime.save_executable(tmp_path / "all.mlirbc", tmp_path / "forces.exe", entry="forces")
    forces = runtime.load_executable(tmp_path / "forces.exe")
    assert forces(3.0) == 6
    file = _executable_file.read((tmp_path / "forces.exe").read_bytes())
    other = _executable_file.ExecutableFile(
        {**file.identity, "x": "y"}, "forces", file.program, b""
    )
    other.write(tmp_path / "other.exe")
    with pytest.warns(runtime.CompiledAgainWarning):
        again = runtime.load_executable(tmp_path / "other.exe")
    assert again(3.0) == 6
