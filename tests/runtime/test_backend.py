"""Backends and devices: what is there, and what to install for what is not."""

from __future__ import annotations

import importlib.util
import sys

import jax
import pytest

import pullback_runtime as runtime

TEXT = "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> { return %x : tensor<2xf32> }"
PRESENT = runtime.backends()

absent = [
    ("cuda", 'pip install "jax[cuda13]" on a machine with an NVIDIA GPU and its driver'),
    ("rocm", 'pip install "jax[rocm7-local]" on a machine with an AMD GPU and ROCm'),
    (
        "tpu",
        'pip install "jax[tpu]" on a TPU machine; without one, compile ahead of time with '
        'topology="v5e:2x2"',
    ),
    ("abacus", "choose one of the known backends: cpu, cuda, rocm, tpu"),
]


def test_the_cpu_is_always_there():
    assert "cpu" in PRESENT
    assert all(device.platform == "cpu" for device in runtime.devices("cpu"))
    assert runtime.devices() == jax.devices()


@pytest.mark.parametrize(("name", "install"), [row for row in absent if row[0] not in PRESENT])
def test_an_absent_backend_says_what_is_there_and_what_to_install(name, install):
    with pytest.raises(runtime.BackendNotFoundError) as caught:
        runtime.compile(TEXT, backend=name)
    assert str(caught.value) == (
        f"no backend {name!r}; present: {', '.join(map(repr, PRESENT))}\n"
        f"  where: backend={name!r}\n"
        f"  do:    {install}"
    )


# JAX asserts that one of the platforms that it knows is here, and says which it does not know.
@pytest.mark.parametrize(
    ("platform", "words"),
    [
        *([] if "cuda" in PRESENT else [("cuda", "none of its platforms is here")]),
        ("abacus", "Unable to initialize backend 'abacus'"),
    ],
)
def test_jax_finds_no_device_at_all(in_process, platform, words):
    script = f"""
        import pullback_runtime as runtime

        def said(call):
            try:
                call()
            except runtime.BackendNotFoundError as error:
                return str(error)

        words = said(runtime.default_backend)
        assert words.startswith("JAX finds no device to run on: {words}"), words
        assert "where: jax_platforms={platform!r}" in words
        assert "do:    name a platform that is here in JAX_PLATFORMS" in words
        assert said(lambda: runtime.devices("cpu")) == said(runtime.backends) == words
    """
    in_process(script, JAX_PLATFORMS=platform)


def test_no_such_device():
    with pytest.raises(runtime.BackendNotFoundError) as caught:
        runtime.compile(TEXT, backend="cpu", device=99)
    last = len(jax.devices("cpu")) - 1
    assert str(caught.value) == (
        f"no device 99 on backend 'cpu'; present: 0 to {last}\n"
        "  where: compile(device=99)\n"
        "  do:    pick from pullback_runtime.devices()"
    )


def test_the_name_of_a_device_is_none():
    with pytest.raises(runtime.BackendNotFoundError, match="'cpu:0' is neither a device nor"):
        runtime.compile(TEXT, device="cpu:0")


def test_a_device_of_another_backend():
    members = {"platform": "other", "__repr__": lambda self: "Stranger(id=0)"}
    stranger = type("Stranger", (), members)()
    with pytest.raises(runtime.BackendNotFoundError, match="is not one of backend 'cpu'"):
        runtime.compile(TEXT, backend="cpu", device=stranger)


def test_topology_without_libtpu(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(runtime.BackendNotFoundError) as caught:
        runtime.compile(TEXT, topology="v5e:2x2")
    assert str(caught.value) == (
        "cannot compile for 'v5e:2x2': libtpu is not installed\n"
        "  where: compile(topology='v5e:2x2')\n"
        "  do:    pip install libtpu (no TPU is needed to compile for one)"
    )


def test_topology_and_device_exclude_each_other():
    with pytest.raises(runtime.ArgumentError) as caught:
        runtime.compile(TEXT, topology="v5e:2x2", backend="cpu")
    assert str(caught.value) == (
        "topology= compiles for a TPU that is not here; backend= and device= name what is\n"
        "  where: compile(topology='v5e:2x2', backend='cpu', device=None)\n"
        "  do:    give one or the other"
    )


def test_it_runs_on_an_explicit_device_or_where_its_arguments_are(in_process):
    script = f"""
    import jax, numpy as np, pullback_runtime as runtime
    x = np.ones(2, np.float32)
    executable = runtime.compile({TEXT!r}, backend="cpu", device=2)
    print(executable)
    print(*executable(x)[0].devices())
    print(*executable(jax.device_put(x, jax.devices()[1]))[0].devices())
    print(*runtime.compile({TEXT!r}, device=jax.devices()[3])(x)[0].devices())
    print(*runtime.compile({TEXT!r}, backend="cpu")(x)[0].devices())
    print(*runtime.compile({TEXT!r})(jax.device_put(x, jax.devices()[1]))[0].devices())
    """
    printed = in_process(script, XLA_FLAGS="--xla_force_host_platform_device_count=4")
    devices = [f"cpu:{i}" for i in (2, 2, 3, 0, 1)]
    assert printed.splitlines() == ["Executable(@main on cpu:2)", *devices]


def test_the_runtime_does_not_import_the_compiler(in_process):
    script = """
    import sys, jax.numpy as jnp, pullback_runtime as runtime
    text = "func.func @main(%x: tensor<f32>) -> tensor<f32> { return %x : tensor<f32> }"
    runtime.compile(text, backend="cpu")(jnp.float32(1))
    runtime.run_interpreted(text, 1.0)
    print(sorted(name for name in sys.modules if name.split(".")[0] == "pullback"))
    """
    assert in_process(script).strip() == "[]"
    assert "pullback_runtime" in sys.modules
