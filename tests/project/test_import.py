"""pullback leaves JAX as it was found: compared in fresh processes, before and after."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

import pullback

SNAPSHOT = """
import sys, threading, types
import jax, jax.numpy as jnp, numpy as np
import jax.export, jax.scipy.special, jax.experimental.pallas, jax.experimental.checkify
import jax._src.hijax, jax._src.shard_map, jax._src.interpreters.batching

OURS = "pullback"


def of_jax(name):
    return name.partition(".")[0] in ("jax", "jaxlib")


def snapshot():
    \"\"\"Return the identity of each function, class member and table entry of JAX's modules.\"\"\"
    found, seen = {}, set()
    for name, module in list(sys.modules.items()):
        if module is not None and of_jax(name):
            for key, value in list(vars(module).items()):
                note(found, seen, (name, key), value)
    return found


def note(found, seen, path, value):
    if isinstance(value, types.ModuleType):
        return
    if callable(value):
        found[path] = value
    if isinstance(value, type) and of_jax(value.__module__ or "") and value not in seen:
        seen.add(value)
        for key, member in list(vars(value).items()):
            if isinstance(member, (types.FunctionType, property, classmethod, staticmethod)):
                found[(*path, key)] = member
    if isinstance(value, dict) and path[1].strip("_").isidentifier() and id(value) not in seen:
        seen.add(id(value))
        for key, entry in list(value.items()):
            if callable(entry) or type(entry).__name__ == "LoweringRuleEntry":
                found[(*path, "entry", repr(key)[:120])] = entry


def check(before, when):
    after = snapshot()
    other = [key for key, value in before.items() if key in after and after[key] is not value]
    gone = [key for key in before if key not in after]
    assert not other and not gone, (when, other[:5], gone[:5])


before = snapshot()
assert len(before) > 5000, len(before)
"""

USE = """
import pullback as pb

check(before, "after the import")


@jax.custom_jvp
def q(A, v):
    return A @ v


@q.defjvp
def _(p, t):
    A, v = p
    return q(A, v), t[0] @ v + A @ t[1]


@jax.custom_vjp
def r(x):
    return jnp.sin(x)


r.defvjp(lambda x: (r(x), x), lambda x, ct: (ct * jnp.cos(x),))


def f(A):
    total = jnp.sum(jax.vmap(q, (None, 0))(A, A)) + jnp.sum(r(A)) + jnp.linalg.det(A)
    return total + jax.lax.scan(lambda c, x: (c + r(x).sum(), None), 0.0, A)[0]


A = jnp.arange(9.0).reshape(3, 3)
inside, done = threading.Event(), threading.Event()


def slow(A):
    inside.set()
    assert done.wait(60)
    return f(A)


thread = threading.Thread(target=lambda: pb.grad(slow)(A))
thread.start()
assert inside.wait(60)
check(before, "while another thread traces")
done.set()
thread.join()

pb.value_and_grad(f)(A), pb.hessian(f)(A), pb.jacfwd(f)(A), pb.jacrev(f)(A), pb.jit(f)(A)
pb.jvp(f, (A,), (A,)), pb.vjp(f, A)[1](1.0), pb.linearize(f, A)[1](A)
pb.linear_transpose(lambda x: 2.0 * x, A)(A), pb.vmap(f)(jnp.stack([A, A]))
jax.vmap(pb.grad(f))(jnp.stack([A, A])), jax.grad(pb.trace(f)(A))(A)
program = pb.trace(f)(A)
import tempfile, pathlib
with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder) / "f.mlirbc"
    program.save(path)
    loaded = pb.load(path)
    loaded.grad()(A), loaded.vmap(axis_size=2)(jnp.stack([A, A])), loaded.compile()(A)
    pb.from_exported(program.to_exported())
check(before, "after use")
"""


def run(code: str) -> None:
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert found.returncode == 0, found.stderr[-3000:]


def test_jax_is_as_it_was_after_the_import_and_after_use() -> None:
    run(SNAPSHOT + USE)


BATCHING = "jax._src.interpreters.batching"


@pytest.mark.parametrize(
    "change",
    [
        "jnp.sin = None",
        f"{BATCHING}.BatchTrace.process_custom_jvp_call = None",
        f"{BATCHING}.fancy_primitive_batchers[jax.lax.sin_p] = print",
    ],
)
def test_a_change_would_be_noticed(change: str) -> None:
    with pytest.raises(AssertionError, match="after a change"):
        run(SNAPSHOT + f"{change}\ncheck(before, 'after a change')")


NUMBERS = """
import jax, jax.numpy as jnp
{first}

@jax.custom_jvp
def q(A, v): return A @ v
@q.defjvp
def _(p, t): A, v = p; return v @ A.T, t[1] @ A.T + v @ t[0].T
A = jnp.arange(9.).reshape(3, 3); W = A ** 2
F = jax.jit(jax.vmap(q, (None, 0)))
G = jax.grad(lambda V: jnp.sum(W * F(A, V)))
print(G(A)[0], jax.make_jaxpr(G)(A), jax.jit(G).lower(A).as_text())
"""


def test_plain_jax_gives_the_same_whether_pullback_is_imported_or_not() -> None:
    printed = [
        subprocess.check_output([sys.executable, "-c", NUMBERS.format(first=first)], text=True)
        for first in ("", "import pullback")
    ]
    assert printed[0] == printed[1]


TOOLS = ("pullback.files", "pullback.testing", "pullback.tools", "pullback.as_jax")
TOOLS += ("pullback.torch", "pullback.nans", "pullback.ir.lexer", "rich.console")
GRADIENT = f"""
import sys
import pullback as pb
assert pb.grad(lambda x: x * x)(3.0) == 6.0
print([name for name in {TOOLS} if name in sys.modules])
print("load" in dir(pb))
print(pb.artifact.__name__, pb.testing.__name__, pb.load.__name__, pb.NanReport.__name__)
"""


def test_a_gradient_imports_no_tools():
    command = [sys.executable, "-c", GRADIENT]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\nTrue\npullback.artifact pullback.testing load NanReport\n"


@pytest.mark.parametrize(
    ("module", "left_out"),
    [
        ("pullback", ("jaxlib.mlir.dialects.mhlo", "rich.console")),
        ("pullback.tools.run", ("pullback.nans", "pullback.ir.lexer", "rich.console")),
        ("pullback.tools.derive", ("pullback.ir.lexer", "rich.console")),
        ("pullback.tools.dump", ("pullback.ir.lexer", "rich.console")),
    ],
)
def test_an_import_leaves_out_what_only_some_uses_need(module, left_out):
    code = f"import sys, {module}; print([name for name in {left_out} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_name_that_is_not_public_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'pullback' has no attribute 'nope'"):
        pullback.nope  # noqa: B018
