"""Compile for a TPU that is not here; needs the libtpu wheel, and runs in a job of its own."""

from __future__ import annotations

import importlib.util

import pytest

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None, reason="libtpu is not installed"
)

COMPILE = """
import jax, jax.numpy as jnp, pullback_runtime as runtime
shape = jax.ShapeDtypeStruct((512, 512), jnp.float32)
step = jax.lax.composite(lambda x, w: jnp.sin(x @ w), name="pullback.custom_jvp_call")
module = jax.jit(step).lower(shape, shape).compiler_ir()
executable = runtime.compile(module, topology={topology!r})
"""


@pytest.mark.parametrize("topology", ["v5e:2x2", "v4:2x2x1"])
def test_a_tpu_executable_is_compiled_ahead_of_time(topology, in_process):
    script = COMPILE.format(topology=topology) + (
        "memory = executable.memory()\n"
        "print(memory.arguments, memory.outputs, memory.code > 0)\n"
        "print(executable.cost()['flops'] >= 2 * 512**3, 'T(8,128)' in executable.hlo())\n"
    )
    printed = in_process(script, TPU_SKIP_MDS_QUERY="1").split()
    assert printed == ["2097152", "1048576", "True", "True", "True"]


def test_it_cannot_be_called_here(in_process):
    script = COMPILE.format(topology="v5e:2x2") + (
        "try:\n    executable(1, 2)\n"
        "except runtime.BackendNotFoundError as error:\n    print(error)\n"
    )
    assert in_process(script, TPU_SKIP_MDS_QUERY="1").strip() == (
        "cannot run a program compiled ahead of time for 'v5e:2x2'\n"
        "  where: in the call of an Executable\n"
        "  do:    read its hlo(), cost() and memory(); to run it, compile without topology= there"
    )


def test_an_unknown_topology(in_process):
    script = (
        "import pullback_runtime as runtime\n"
        "text = 'func.func @main(%x: tensor<f32>) { return }'\n"
        "try:\n    runtime.compile(text, topology='v9:2x2')\n"
        "except runtime.BackendNotFoundError as error:\n    print(error)\n"
    )
    printed = in_process(script, TPU_SKIP_MDS_QUERY="1")
    assert printed.startswith("no TPU topology 'v9:2x2': ")
    assert 'name the chip and its grid, such as "v5e:2x2" or "v4:2x2x1"' in printed


OFFLOADED = """
import functools
import jax, jax.numpy as jnp, pullback as pb, pullback_runtime as runtime
from jax.ad_checkpoint import checkpoint_name

policies = jax.checkpoint_policies
stored = policies.save_only_these_names("y")
offloaded = policies.save_and_offload_only_these_names(
    names_which_can_be_saved=[], names_which_can_be_offloaded=["y"],
    offload_src="device", offload_dst="pinned_host")
x = jax.ShapeDtypeStruct((2048, 2048), jnp.float32)

def loss(policy):
    @functools.partial(jax.checkpoint, policy=policy)
    def step(c, x):
        return jnp.cos(checkpoint_name(jnp.sin(c), "y")) * x
    return lambda x: jnp.sum(jax.lax.fori_loop(0, 20, lambda _, c: step(c, x), x))

for policy in stored, offloaded:
    program = pb.trace(loss(policy), platforms=["tpu"])(x)
    whole = runtime.compile(str(program.grad()), topology="v5e:2x2")
    first = runtime.compile(str(program.split_vjp().forward), topology="v5e:2x2")
    print(whole.memory().temporaries >> 20, first.memory().outputs >> 20, "S(5)" in whole.hlo())
"""


def test_what_a_policy_offloads_is_in_the_memory_of_the_host(in_process):
    """Half of what a loop stores, and then also what a split hands on."""
    printed = in_process(OFFLOADED, TPU_SKIP_MDS_QUERY="1").split()
    assert printed[2::3] == ["False", "True"]
    stored, offloaded = map(int, printed[::3])
    assert offloaded < 0.6 * stored
    stored, offloaded = map(int, printed[1::3])
    assert offloaded < 0.6 * stored
