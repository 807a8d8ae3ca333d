"""A kill at any moment of a save leaves the old file or the new one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap

import pytest

import pullback as pb
from pullback.files.atomic_write import write_atomically

KILLED_AT_EACH_LINE = """
import os, signal, sys
from pullback.files import atomic_write as atomic

folder, old, new = sys.argv[1], b"old" * 1000, b"new" * 5000

def killed_at(line):
    seen = 0
    def trace(frame, event, _):
        nonlocal seen
        if frame.f_code.co_filename != atomic.__file__:
            return None
        seen += 1
        if seen == line:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace
    sys.settrace(trace)
    atomic.write_atomically(path, new)
    sys.settrace(None)

outcomes = []
for line in range(1, 200):
    path = os.path.join(folder, "model.mlirbc")
    atomic.write_atomically(path, old)
    child = os.fork()
    if child == 0:
        killed_at(line)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    content = open(path, "rb").read()
    assert content in (old, new), (line, content[:20])
    outcomes.append("new" if content == new else "old")
    if not os.WIFSIGNALED(status):
        break
print(" ".join(outcomes))
"""


def run(script, *args):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(script), *map(str, args)]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120, check=True
    ).stdout


def test_a_kill_at_any_line_leaves_one_whole_file(tmp_path):
    outcomes = run(KILLED_AT_EACH_LINE, tmp_path).split()
    assert len(outcomes) > 20
    assert {"old", "new"} == set(outcomes)
    assert outcomes == sorted(outcomes, reverse=True), "once new, it stays new"


WRITES_FOR_EVER = """
import sys
from pullback.files.atomic_write import write_atomically
print("ready", flush=True)
while True:
    for letter in (b"a", b"b"):
        write_atomically(sys.argv[1], letter * 2_000_000)
"""


@pytest.mark.parametrize("milliseconds", [3, 11, 29])
def test_a_kill_at_any_time_leaves_one_whole_file(tmp_path, milliseconds):
    path = tmp_path / "model.mlirbc"
    write_atomically(path, b"a" * 2_000_000)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", WRITES_FOR_EVER, str(path)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        try:
            process.wait(milliseconds / 1000)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
    content = path.read_bytes()
    assert len(content) == 2_000_000
    assert set(content) in ({ord("a")}, {ord("b")})


def test_a_failed_save_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "model.mlirbc"
    write_atomically(path, b"old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(pb.ArtifactError, match=r"cannot write .*No space left on device"):
        write_atomically(path, b"new")
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.mlirbc"]
    assert path.read_bytes() == b"old"


def test_a_missing_folder(tmp_path):
    with pytest.raises(pb.ArtifactError, match="No such file") as caught:
        write_atomically(tmp_path / "nowhere" / "model.mlirbc", b"")
    assert "check that the folder is there" in caught.value.do


def test_modes_are_those_of_open(tmp_path):
    path, plain = tmp_path / "model.mlirbc", tmp_path / "plain"
    write_atomically(path, b"")
    plain.write_bytes(b"")
    assert path.stat().st_mode == plain.stat().st_mode
    path.chmod(0o600)
    write_atomically(path, b"again")
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_mask_of_the_process_stays_as_it_is(tmp_path, monkeypatch):
    """Other threads would write files meanwhile that all the world may write to."""
    monkeypatch.setattr(os, "umask", None)
    for content in (b"new", b"again"):
        write_atomically(tmp_path / "model.mlirbc", content)
        assert (tmp_path / "model.mlirbc").read_bytes() == content


def test_a_secret_file_is_one_at_any_moment(tmp_path, monkeypatch):
    path, modes = tmp_path / "model.mlirbc", []
    path.write_bytes(b"")
    path.chmod(0o600)
    monkeypatch.setattr(os, "fsync", lambda file: modes.append(os.fstat(file).st_mode & 0o777))
    write_atomically(path, b"secret")
    assert modes[0] == 0o600


@pytest.mark.parametrize("before", [b"old", None], ids=["a file", "nothing yet"])
def test_a_link_stays_a_link(tmp_path, before):
    path, link = tmp_path / "folder" / "model.mlirbc", tmp_path / "latest.mlirbc"
    path.parent.mkdir()
    if before is not None:
        path.write_bytes(before)
    link.symlink_to(path)
    write_atomically(link, b"new")
    assert link.is_symlink()
    assert path.read_bytes() == b"new"
    assert sorted(entry.name for entry in tmp_path.rglob("*")) == [
        "folder",
        "latest.mlirbc",
        "model.mlirbc",
    ]


def test_a_pipe_takes_the_content_and_stays_a_pipe(tmp_path):
    """As `/dev/stdout` and `/dev/null` do: renamed over, they would be gone for everyone."""
    pipe, taken = tmp_path / "pipe", tmp_path / "taken"
    os.mkfifo(pipe)
    with taken.open("wb") as output, subprocess.Popen(["cat", pipe], stdout=output) as reader:
        write_atomically(pipe, [b"one", memoryview(b"two")])
        reader.wait(10)
    assert pipe.is_fifo()
    assert taken.read_bytes() == b"onetwo"


@pytest.mark.parametrize("name", ["m" * 255, "\u00e9" * 127, "-o {odd} \n'%s'.mlirbc"])
def test_names_that_the_file_system_takes(tmp_path, name):
    write_atomically(tmp_path / name, b"new")
    assert (tmp_path / name).read_bytes() == b"new"


@pytest.mark.parametrize("name", ["no\0name", "m" * 300, ""])
def test_names_that_it_does_not_take(tmp_path, name):
    with pytest.raises(pb.ArtifactError, match="cannot write"):
        write_atomically(os.path.join(tmp_path, name), b"")
    with pytest.raises(pb.ArtifactError, match="cannot read"):
        pb.load(os.path.join(tmp_path, name))
    assert list(tmp_path.iterdir()) == []
