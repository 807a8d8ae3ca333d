"""Damaged and random files: always a clean ArtifactError, never a crash, a hang or a flood.

`PULLBACK_FUZZ_CASES=5000 pytest tests/files/test_damage.py` is the long run.
"""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import pullback as pb
import pullback_runtime as runtime
from pullback import artifact
from pullback_runtime import _jax
from pullback_runtime.files import _safe_parse
from pullback_runtime.ir import _module
from tests.files import models

CASES = int(os.environ.get("PULLBACK_FUZZ_CASES", "300"))


def portable_without_digest() -> bytes:
    module = models.program().stage_rules().module
    with module.context:
        return _jax.stablehlo.serialize_portable_artifact(
            _without_chlo(module), _jax.stablehlo.get_minimum_version().replace("0.9", "1.9")
        )


def _without_chlo(module):
    copy = _module.parse(_module.to_bytecode(module), module.context)
    _jax.run_passes(copy, "builtin.module(func.func(chlo-legalize-to-stablehlo))")
    return copy


def exported() -> bytes:
    args, kwargs = models.arguments()
    return bytes(jax.export.export(jax.jit(models.loss))(*args, **kwargs).serialize())


MAKERS = {
    "saved": lambda: artifact.serialize(models.program()),
    "portable": portable_without_digest,
    "bytecode": lambda: _module.to_bytecode(models.program().stage_rules().module),
    "text": lambda: str(models.program().stage_rules()).encode(),
    "exported": exported,
}


WITH_TREES = ("saved", "exported")


@functools.cache
def sound(kind: str) -> bytes:
    return MAKERS[kind]()


@pytest.fixture(scope="module", autouse=True)
def short_trials():
    """Sound files of this size take milliseconds; a hang need not be waited for long."""
    before, _safe_parse.SECONDS = _safe_parse.SECONDS, 2
    yield
    _safe_parse.SECONDS = before
    _safe_parse.stop()


@pytest.mark.parametrize("kind", MAKERS)
def test_sound_files_load(kind):
    args, kwargs = models.arguments()
    program = pb.load(sound(kind))
    leaves = jax.tree.leaves((args, kwargs))
    results = program(*args, **kwargs) if kind in WITH_TREES else program(*leaves)
    expected = jax.tree.leaves(models.loss(*args, **kwargs))
    found = [float(leaf) for leaf in jax.tree.leaves(results)]
    assert found == pytest.approx([float(leaf) for leaf in expected], rel=1e-6)


def test_complex_numbers_in_attributes():
    """The bindings have no class for arrays of them: files of others with a constant failed."""
    text = """func.func @main(%x: tensor<2xcomplex<f32>>) -> tensor<2xcomplex<f32>> {
      %c = stablehlo.constant {list = [CONSTANT], dict = {entry = CONSTANT}} CONSTANT
      %0 = stablehlo.multiply %x, %c : tensor<2xcomplex<f32>>
      return %0 : tensor<2xcomplex<f32>>
    }""".replace("CONSTANT", "dense<(1.0, 2.0)> : tensor<2xcomplex<f32>>")
    x = jnp.array([1.0, 1j])
    exported = jax.export.export(jax.jit(lambda x: x * (1 + 2j)))(x)
    for content in (text.encode(), bytes(exported.serialize())):
        assert jnp.allclose(pb.load(content).jvp()(x, x)[1], x * (1 + 2j))


CRASHING = {
    "nowhere": "names the function @nowhere, which is not there",
    "declared": "@declared is declared, and has no body",
    "main": "@main calls itself, which XLA does not run",
}


def test_a_custom_call_of_a_function_that_cannot_be_called():
    """XLA ends the process on it."""
    text = """func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
      %0 = stablehlo.custom_call @anything(%x) {called_computations = [@NAME]}
        : (tensor<3xf32>) -> tensor<3xf32>
      return %0 : tensor<3xf32>
    }
    func.func private @declared(%x: tensor<3xf32>) -> tensor<3xf32>
    func.func private @whole(%x: tensor<3xf32>) -> tensor<3xf32> {
      return %x : tensor<3xf32>
    }"""
    allowed = ["anything"]
    assert pb.load(text.replace("NAME", "whole").encode(), allow_custom_calls=allowed).module
    for name, why in CRASHING.items():
        with pytest.raises(pb.ArtifactError, match=why):
            pb.load(text.replace("NAME", name).encode(), allow_custom_calls=allowed)


def test_a_call_that_nothing_meets_is_no_damage():
    """One function of a file was enough for none to load, whatever the entry."""
    text = """func.func @main(%x: tensor<f32>) -> tensor<f32> {
      %0 = stablehlo.custom_call @anything(%x) {called_computations = [@nowhere]}
        : (tensor<f32>) -> tensor<f32>
      return %0 : tensor<f32>
    }
    func.func private @declared(%x: tensor<f32>) -> tensor<f32>
    func.func @caller(%x: tensor<f32>) -> tensor<f32> {
      %0 = call @declared(%x) : (tensor<f32>) -> tensor<f32>
      return %0 : tensor<f32>
    }
    func.func @sine(%x: tensor<f32>) -> tensor<f32> {
      %0 = stablehlo.sine %x : tensor<f32>
      return %0 : tensor<f32>
    }"""
    assert pb.load(text.encode(), entry="sine").grad()(0.0) == 1
    with pytest.raises(pb.ArtifactError) as caught:  # although nothing meets any of them
        pb.load(text.replace("@main", "@first").encode())
    assert caught.value.where == "functions of the module: @first, @declared, @caller, @sine"
    with pytest.raises(pb.ArtifactError, match="names the function @nowhere, which is not there"):
        pb.load(text.encode())
    with pytest.raises(pb.ArtifactError, match="@declared is declared, and has no body"):
        pb.load(text.encode(), entry="caller")


def test_a_module_of_the_working_directory_does_not_run(tmp_path):
    """It did in the helper process, where it hid one of the standard library."""
    (tmp_path / "json.py").write_text("raise SystemExit('it ran')")
    (tmp_path / "f.mlir").write_text(
        "func.func @main(%x: tensor<f32>) -> tensor<f32> { return %x : tensor<f32> }"
    )
    code = "import sys; sys.path.remove(''); import pullback as pb; print(pb.load('f.mlir')(2.0))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("2.0\n", 0), done.stderr


@st.composite
def damages(draw):
    """A kind of file and what happens to it, all positions as fractions of its length."""
    fraction = st.integers(0, 2**32 - 1)
    cut = st.tuples(st.just("cut"), fraction)
    flips = st.tuples(
        st.just("flip"), st.lists(st.tuples(fraction, st.integers(0, 7)), min_size=1, max_size=4)
    )
    overwrite = st.tuples(st.just("overwrite"), fraction, st.binary(min_size=1, max_size=40))
    insert = st.tuples(st.just("insert"), fraction, st.binary(min_size=1, max_size=40))
    replace = st.tuples(st.just("replace"), st.binary(max_size=400), st.booleans())
    return draw(st.sampled_from(sorted(MAKERS))), draw(
        st.one_of(flips, flips, cut, overwrite, insert, replace)
    )


def damage(content: bytes, how) -> bytes:
    kind, what, *rest = how
    if kind == "replace":
        return (content[:4] if rest[0] else b"") + what
    if kind == "flip":
        flipped = bytearray(content)
        for where, bit in what:
            flipped[where % len(content)] ^= 1 << bit
        return bytes(flipped)
    at = what % len(content)
    if kind == "cut":
        return content[:at]
    resume = at + len(rest[0]) if kind == "overwrite" else at
    return content[:at] + rest[0] + content[resume:]


@settings(
    max_examples=CASES,
    deadline=None,
    database=None,
    derandomize=CASES == 300,
    suppress_health_check=list(HealthCheck),
)
@given(case=damages())
def test_damaged_files_are_refused_cleanly(case):
    kind, how = case
    damaged = damage(sound(kind), how)
    try:
        pb.load(damaged)
    except pb.ArtifactError as error:
        told = bool(error.message and error.do)
    else:
        # Without a digest, a changed constant or name is just another sound module.
        told = kind != "saved" or damaged == sound(kind)
    assert told


def test_every_truncation_of_a_saved_file_is_seen():
    content = sound("saved")
    for length in range(0, len(content), 97):
        with pytest.raises(pb.ArtifactError):
            pb.load(content[:length])


def test_a_crash_of_the_parser_is_an_error_here():
    """A module nested so deep that the parser's stack overflows."""
    deep = "module { func.func @main() { return } " + "module { " * 200_000 + "} " * 200_000 + "}"
    with pytest.raises(pb.ArtifactError, match=r"crashes the parser|does not parse"):
        pb.load(deep.encode())
    assert repr(pb.load(b"module { func.func @main() { return } }")) == "Program(() -> ())"


def test_names_that_are_not_text_do_not_end_this_process():
    """Found by the long run: the bindings abort when Python asks for such a name."""
    text = (
        'module { func.func @main() { stablehlo.composite "a.b" {composite_attributes = '
        '{QQQQ = "x"}, decomposition = @g} : () -> () return } func.func private @g() { return } }'
    )
    content = _module.to_bytecode(_module.parse(text.encode()))
    assert repr(pb.load(content)) == "Program(() -> ())"
    with pytest.raises(pb.ArtifactError, match="crashes the parser"):
        pb.load(content.replace(b"QQQQ", b"\xff\xfeQQ"))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "the file holds an empty module"),
        (b"module {", "the file does not parse"),
        (b"ML\xefR", "it ends inside a number"),
        (b"\0" * 100, "neither StableHLO text or bytecode, nor what jax.export serialised"),
        (b"PK\x03\x04" + bytes(100), "neither StableHLO text or bytecode"),
        (b"module { func.func @other() { return } }", "no function @main"),
        (None, "cannot read a program from NoneType"),
        (3, "cannot read a program from int"),
    ],
)
def test_words_of_the_refusals(content, words):
    with pytest.raises(pb.ArtifactError, match=words) as caught:
        pb.load(content)
    assert caught.value.do
    assert "do:" not in caught.value.message


def test_a_file_of_another_kind_is_refused_without_the_words_of_a_parser_of_flatbuffers():
    with pytest.raises(pb.ArtifactError) as caught:
        pb.load(b"\x89PNG\r\n\x1a\n" + bytes(50))
    assert "flatbuffers" not in str(caught.value)


def test_the_file_is_named(tmp_path):
    text, cut = tmp_path / "text.mlir", tmp_path / "cut.mlirbc"
    text.write_text("func.func @main(")
    with pytest.raises(pb.ArtifactError, match=re.escape(f"where: {text}:1:16")):
        pb.load(text)
    cut.write_bytes(artifact.serialize(pb.trace(jnp.sin)(1.0))[:-100])
    with pytest.raises(pb.ArtifactError) as caught:
        pb.load(cut)
    assert caught.value.where.startswith(f"{cut}, a file of ")


QUANTIZED = b"""func.func @main(%x: tensor<f32>) {
  %0 = stablehlo.uniform_quantize %x : (tensor<f32>) -> tensor<!quant.uniform<i8:f32, 0.1:0>>
  return
}"""


def test_a_dialect_that_jaxlib_lacks():
    """MLIR says which flag of its tools would help; neither we nor jaxlib have it."""
    unknown = b'func.func @main() { "acme.op"() : () -> () return }'
    for content, words in (
        (QUANTIZED, "pullback opt --stablehlo-legalize-quant-to-math"),
        (unknown, "lower it to StableHLO and CHLO"),
    ):
        for load in (pb.load, runtime.load):
            errors = pb.ArtifactError, runtime.PullbackRuntimeError
            with pytest.raises(errors, match="unregistered dialect") as caught:
                load(content)
            assert words in caught.value.do
            assert "nregistered-dialect" not in str(caught.value)
            assert "allowUnregisteredDialects" not in str(caught.value)


def test_a_function_may_have_the_name_of_a_dialect():
    @jax.jit
    def quant(x):
        return jnp.round(x)

    x = jnp.float32(2.6)
    exported = jax.export.export(jax.jit(lambda x: quant(x) + 1))(x)
    assert "@quant" in exported.mlir_module()
    for content in (exported.mlir_module(), exported.mlir_module_serialized, exported.serialize()):
        assert pb.load(content.encode() if isinstance(content, str) else bytes(content))(x) == 4


def test_quantized_types_in_a_portable_artifact():
    """Where an artifact had been read before, they loaded, for its reader loads the dialect."""
    saved = artifact.serialize(pb.trace(jnp.sin)(1.0))
    context = _jax.fresh_context()
    _jax.stablehlo.deserialize_portable_artifact(context, saved)
    module = _jax.ir.Module.parse(QUANTIZED, context)
    quantized = _jax.stablehlo.serialize_portable_artifact(module, "1.0.0")
    pb.load(saved)
    with pytest.raises(pb.ArtifactError, match="unregistered dialect, quant") as caught:
        pb.load(quantized)
    assert "without quantized types" in caught.value.do
    with pytest.raises(pb.ArtifactError) as caught:
        pb.load(_module.to_bytecode(module))
    assert "without quantized types" in caught.value.do


MEMORY = """
import sys
import pullback as pb

def peak():
    with open("/proc/self/status") as status:
        lines = dict(line.split(":", 1) for line in status)
    return int(lines["VmHWM"].split()[0]) * 1024

pb.load(b"module { func.func @main() { return } }")  # whatever a first load needs
with open("/proc/self/clear_refs", "w") as reset:
    reset.write("5")
before = peak()
try:
    pb.load(sys.argv[1])
except pb.ArtifactError as error:
    print(peak() - before, error.message)
"""


@pytest.mark.parametrize("kind", ["digest", "declared", "no digest"])
def test_memory_stays_below_twice_the_file(tmp_path, kind):
    size = 32 << 20
    content = big_file(size)
    content[{"digest": size // 2, "declared": len(content) - 3000}.get(kind, 10)] ^= 0x40
    if kind == "no digest":
        content = content.replace(b"pullback-", b"pulldown-").replace(b'{"pulldown-', b'{"pullup-')
    path = tmp_path / "damaged.mlirbc"
    path.write_bytes(content)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "JAX_PLATFORMS": "cpu"}
    printed = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(MEMORY), str(path)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    ).stdout
    used, message = printed.split(" ", 1)
    assert message
    assert int(used) < 2 * len(content) + (8 << 20)


def big_file(size: int) -> bytearray:
    values = models.weights(size // 4)
    program = pb.trace(lambda x: x * values)(jax.ShapeDtypeStruct(values.shape, values.dtype))
    return bytearray(artifact.serialize(program))
