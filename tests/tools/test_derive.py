"""`pullback derive`: the module of a derivative, held to JAX's numbers."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback
import pullback_runtime
from pullback.tools import module_io
from pullback_runtime.files import _container
from tests.rounding import FUNCTION, close

EXAMPLES = Path(__file__).parents[2] / "examples"
CODE = """
import jax
import jax.numpy as jnp
from jax import nn
def f(x, y): return jnp.sin(x) * y + nn.relu(y)
def scalar(x): return jnp.sin(x) ** 3
def norm(x, y): return jnp.sum(x * y)
def pair(x, n): return x * x, n
def loop(x): return jax.lax.fori_loop(0, 900, lambda i, x: jnp.sin(x) * 1.5, x).sum()
table = jnp.linspace(0.0, 1.0, 200)
def closed(x): return table * x
clipped = jax.custom_vjp(lambda x: x * 1.0)
clipped.defvjp(lambda x: (x * 1.0, None), lambda _, ct: (jnp.clip(ct, -1, 1),))
pushing = jax.custom_jvp(lambda x: clipped(x) ** 2)
pushing.defjvp(lambda p, t: jax.jvp(lambda x: clipped(x) ** 2, p, t))
"""


@pytest.fixture
def code(tmp_path):
    """A file with functions to differentiate."""
    path = tmp_path / "code.py"
    path.write_text(CODE)
    return path


def evaluate(text: str | bytes, *values: object) -> list[np.ndarray]:
    executable = pullback_runtime.compile(text, backend="cpu")
    return [np.asarray(result) for result in executable(*values)]


def functions() -> dict[str, object]:
    namespace: dict[str, object] = {}
    exec(CODE, namespace)
    return namespace


X = np.array([0.5, -1.0], np.float32)
Y = np.array([2.0, -3.0], np.float32)
CT = np.array([1.0, 10.0], np.float32)


def test_vjp(pullback_command, code):
    text = pullback_command("derive", f"{code}:f", "--args", "f32[2], f32[2]", "--vjp").stdout
    value, pull = jax.vjp(functions()["f"], X, Y)
    for found, expected in zip(evaluate(text, X, Y, CT), (value, *pull(CT)), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_tangent_that_only_goes_back_is_not_written(pullback_command, code):
    target = (f"{code}:pushing", "--args", "f32[2]")
    value, ct = evaluate(pullback_command("derive", *target, "--vjp").stdout, X, CT)
    np.testing.assert_allclose((value, ct), (X**2, np.clip(2 * CT * X, -1, 1)))
    refused = pullback_command("derive", *target, "--jvp")
    assert refused.exit_code == 2
    assert "no jvp rule for a custom_vjp function" in refused.stderr


def test_a_hyphen_is_stdout(pullback_command, code, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    asked = ("derive", f"{code}:f", "--args", "f32[2], f32[2]", "--vjp")
    assert pullback_command(*asked, "-o", "-").stdout == pullback_command(*asked).stdout
    assert not (tmp_path / "-").exists()


def test_jvp_with_respect_to_one_argument(pullback_command, code):
    options = ("--args", "f32[2], f32[2]", "--jvp", "--argnums", "1")
    text = pullback_command("derive", f"{code}:f", *options).stdout
    expected = jax.jvp(lambda y: functions()["f"](X, y), (Y,), (CT,))
    for found, wanted in zip(evaluate(text, X, Y, CT), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_grad_of_any_order(pullback_command, code, order):
    options = ("--args", "f32", "--grad", "--order", order)
    text = pullback_command("derive", f"{code}:scalar", *options).stdout
    derivative = functions()["scalar"]
    for _ in range(order):
        derivative = jax.grad(derivative)
    (found,) = evaluate(text, np.float32(0.3))
    np.testing.assert_allclose(found, derivative(0.3), rtol=1e-5)


def test_a_budget_is_kept(pullback_command, code):
    sizes = []
    for options in (), ("--memory", "4kB"):
        given = f"{code}:loop", "--args", "f32[2]", "--grad", *options
        text = pullback_command("derive", *given).stdout
        sizes.append(pullback_runtime.compile(text, backend="cpu").memory().temporaries)
    assert sizes[1] <= 4000 < sizes[0]


def test_a_file_is_derived_too_and_derived_again(pullback_command, code, tmp_path):
    first, second = tmp_path / "first.mlirbc", tmp_path / "second.mlir"
    options = ("--args", "f32", "--grad", "--rules")
    assert pullback_command("derive", f"{code}:scalar", *options, "-o", first).exit_code == 0
    assert _container.is_bytecode(first.read_bytes())
    assert pullback_command("derive", first, "--grad", "-o", second).exit_code == 0
    (found,) = evaluate(second.read_text(), np.float32(0.3))
    expected = jax.grad(jax.grad(functions()["scalar"]))(0.3)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_closed_over_arrays_are_not_differentiated(pullback_command, code):
    result = pullback_command("derive", f"{code}:closed", "--args", "f32", "--jvp")
    assert (
        "the first 1 arguments of @main are arrays that the function closed over" in result.stderr
    )
    table = np.linspace(0.0, 1.0, 200, dtype=np.float32)
    _, tangent = evaluate(result.stdout, table, np.float32(3), np.float32(2))
    np.testing.assert_allclose(tangent, table * 2, rtol=1e-6)


def test_lower_leaves_pure_stablehlo(pullback_command, code):
    options = ("--args", "f32[2], f32[2]", "--vjp")
    assert "pullback." in pullback_command("derive", f"{code}:f", *options, "--rules").stdout
    lowered = pullback_command("derive", f"{code}:f", *options, "--lower").stdout
    assert "pullback." not in lowered
    module_io.parse_module(lowered).operation.verify()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            ["f", "--vjp", "--wrt", "7"],
            "argnums=7 requires at least 8 positional arguments, but only 2",
        ),
        (["f", "--vjp", "--wrt", "x"], "'x' is not positions such as 0,1"),
        (["f", "--vjp", "--wrt", "0_1"], "'0_1' is not positions such as 0,1"),
        (["f", "--vmap", "2", "--in-axes", "0_0"], "'0_0' is not axes such as 0,none"),
        (
            ["f", "--grad"],
            "Gradient only defined for scalar-output functions. Output had shape: (2,)",
        ),
        (["f"], "nothing says which derivative to take"),
        (["norm", "--sparse-hessian", "--order", "2"], "--order says nothing without --jvp"),
        (["f", "--jet", "0"], "a Taylor series of order 0"),
        (["f", "--jet", "-1"], "give the number of its terms, an integer of 1 or more"),
        (["f", "--jet", "two"], "'two' is not a valid integer"),
        (["f", "--jet", "2", "--order", "2"], "--order says nothing without --jvp, --vjp or --gr"),
        (["f", "--jet", "2", "--jvp"], "--jvp and --jet are different derivatives"),
        (["pair", "--jet", "2", "--wrt", "1"], "argument 1 has no derivative: it is int32[2]"),
        (["f", "--jvp", "--memory", "1MB"], "--memory says nothing without --vjp or --grad"),
        (["f", "--vjp", "--memory", "much"], "memory='much' is no number of bytes"),
        (["f", "--vjp", "--jvp"], "--jvp and --vjp are different derivatives"),
        (["pair", "--vjp", "--wrt", "1"], "argument 1 has no derivative: it is int32[2]"),
        (["pair", "--jvp", "--wrt", "0,1"], "argument 1 has no derivative: it is int32[2]"),
        (["f", "--vjp", "--order", "0"], "0 is not in the range"),
        (["f", "--vjp", "--in-axes", "0"], "--in-axes says nothing without --vmap"),
        (["f", "--vmap", "2", "--order", "2"], "--order says nothing without one of --jvp"),
        (["f", "--vmap", "2", "--wrt", "0"], "--wrt says nothing without one of --jvp"),
        (["f", "--vjp", "--allow-refusals"], "--allow-refusals says nothing without -o FILE.mlir"),
        (["f", "--vjp", "--rules", "--lower"], "--lower takes away the rules that --rules stages"),
        (["f", "--grad"], "for others pb.vjp or pb.jacrev (--vjp in a shell)"),
        (["norm", "--grad", "--order", "2"], "where: derivative 2 of 2, of what the one before"),
    ],
)
def test_each_mistake_has_a_message(pullback_command, code, options, words):
    function, *rest = options
    types = "f32[2], i32[2]" if function == "pair" else "f32[2], f32[2]"
    command = ("derive", f"{code}:{function}", "--args", types, *rest)
    result = pullback_command(*command)
    assert result.exit_code == 2
    assert words in result.stderr


def test_an_integer_has_no_cotangent(pullback_command, code):
    text = pullback_command("derive", f"{code}:pair", "--args", "f32, i32", "--vjp").stdout
    value, count, cotangent = evaluate(text, np.float32(3), np.int32(7), np.float32(1))
    assert (value, count, cotangent) == (9, 7, 6)


@pytest.mark.parametrize("embedded_below", [0, 4 << 20])
def test_a_saved_program_goes_through_the_pipes_as_text(
    pullback_command, tmp_path, monkeypatch, embedded_below
):
    """Its large constants are MLIR resources in rules, and hidden arguments of the entry.

    Those of a small file are constants of the module.
    """
    monkeypatch.setattr("pullback_runtime.files._artifact.EMBEDDED_BELOW", embedded_below)
    monkeypatch.setattr("pullback_runtime.files._artifact.MANY_EMBEDDED_BELOW", embedded_below)
    table = np.linspace(-1.0, 1.0, 8192, dtype=np.float32)

    @jax.custom_vjp
    def scaled(x):
        return x * table

    scaled.defvjp(lambda x: (x * table, None), lambda _, ct: (2 * ct * table,))
    saved = tmp_path / "scaled.mlirbc"
    pullback.trace(lambda x: jnp.sum(scaled(x)))(table).save(saved)
    text = pullback_command("dump", saved, "--constants", "all").stdout
    assert ("dialect_resources" in text) == (not embedded_below)
    again = pullback_command("opt", "-", stdin=text).stdout
    name = re.compile(r"constant_\w+")  # a context gives the resource a name of its own
    assert name.sub("constant", again).strip() == name.sub("constant", text).strip()
    hidden = [table] * (text.partition("->")[0].count("tensor<8192xf32>") - 1)
    assert bool(hidden) == (not embedded_below)
    options = ("--vjp", "--wrt", len(hidden))
    derived = pullback_command("derive", "-", *options, stdin=again).stdout
    value, cotangent = evaluate(derived, *hidden, table, np.float32(1))
    np.testing.assert_allclose(value, np.sum(table * table), rtol=1e-5)
    np.testing.assert_allclose(cotangent, 2 * table, rtol=1e-6)


def test_saved_programs_keep_what_they_closed_over(pullback_command, code, tmp_path):
    saved = tmp_path / "closed.mlirbc"
    options = ("--args", "f32", "--vjp", "-o", saved)
    assert pullback_command("derive", f"{code}:closed", *options).exit_code == 0
    program = pullback.load(saved)
    value, (cotangent,) = program(np.float32(2), np.ones(200, np.float32))
    np.testing.assert_allclose(value, np.linspace(0, 2, 200), rtol=1e-6)
    np.testing.assert_allclose(cotangent, 100.0, rtol=1e-6)


@pytest.mark.parametrize("command", [("derive", "--grad"), ("dump", "--stage", "grad")])
def test_what_goes_wrong_in_a_rule_is_said(pullback_command, tmp_path, command):
    (tmp_path / "wrong.py").write_text(
        "import jax\n@jax.custom_jvp\ndef f(x):\n    return x\n"
        "@f.defjvp\ndef rule(primals, tangents):\n    return f(*primals), tangents[0].nosuch\n"
        "def loss(x):\n    return f(x) * x\n"
    )
    name, *flags = command
    result = pullback_command(name, f"{tmp_path / 'wrong.py'}:loss", "--args", "f32", *flags)
    assert result.exit_code == 2
    assert "failed under tracing: AttributeError" in result.stderr
    assert "wrong.py:7, in rule" in result.stderr


@pytest.mark.slow
def test_the_example_where_jax_gives_up(pullback_command, monkeypatch, tmp_path):
    """Derivatives in what a linear call is not linear in; JAX's, of the plain division."""
    saved = tmp_path / "gradient.mlirbc"
    target = f"{EXAMPLES / 'rules.py'}:train_step"
    assert pullback_command("derive", target, "--grad", "--wrt", "1", "-o", saved).exit_code == 0
    rules = runpy.run_path(str(EXAMPLES / "rules.py"))
    train_step, arguments = rules["train_step"], rules["example_args"]
    with pytest.raises(AssertionError):
        jax.grad(train_step, 1)(*arguments)
    found = pullback.load(saved)(*arguments)
    monkeypatch.setitem(train_step.__globals__, "precondition", lambda scale, step: step / scale)
    expected = jax.grad(train_step, 1)(*arguments)
    for name in ("first", "second"):
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-4, atol=1e-8)
        assert np.abs(expected[name]).max() > 1e-4


def test_a_call_by_hand_without_a_rule(pullback_command, tmp_path):
    path = tmp_path / "no_rule.mlir"
    path.write_text(
        "func.func @main(%x: tensor<f32>) -> tensor<f32> {\n"
        '  %0 = stablehlo.composite "pullback.custom_jvp_call" %x {decomposition = @f}\n'
        "    : (tensor<f32>) -> tensor<f32>\n"
        "  return %0 : tensor<f32>\n}\n"
        "func.func private @f(%x: tensor<f32>) -> tensor<f32> { return %x : tensor<f32> }\n"
    )
    result = pullback_command("derive", path, "--grad")
    assert result.exit_code == 2
    assert "no jvp rule for `f`" in result.stderr
    assert "write `jvp = @…` into composite_attributes" in result.stderr


@pytest.mark.parametrize("command", [["derive", "--grad"], ["run"], ["dump"], ["check"]])
def test_parse_errors_have_the_form_of_opt(pullback_command, tmp_path, command):
    path = tmp_path / "wrong.mlir"
    path.write_text(
        "func.func @main(%x: tensor<f32>) -> tensor<f32> {\n  return %y : tensor<f32>\n}"
    )
    result = pullback_command(command[0], path, *command[1:])
    assert result.exit_code == 2
    assert "damaged" not in result.stderr
    assert result.stderr.splitlines() == [
        f"{path}:2:10: error: the file does not parse: use of undeclared SSA value name",
        "  return %y : tensor<f32>",
        "         ^",
        "  do:    correct the text of the module there",
    ]


def test_the_place_of_a_broken_constraint_names_the_file(pullback_command, tmp_path):
    path = tmp_path / "wrong.mlir"
    path.write_text(
        "func.func @main(%x: tensor<f32>) -> tensor<f32> {\n"
        '  %0 = stablehlo.composite "pullback.custom_jvp_call" %x {\n'
        "    composite_attributes = {jvp = @nowhere}, decomposition = @f\n"
        "  } : (tensor<f32>) -> tensor<f32>\n"
        "  return %0 : tensor<f32>\n}\n"
        "func.func private @f(%x: tensor<f32>) -> tensor<f32> { return %x : tensor<f32> }\n"
    )
    result = pullback_command("derive", path, "--grad")
    assert result.exit_code == 2
    assert f"{path}:2:8: error: custom_jvp_call_c3: `jvp` names @nowhere" in result.stderr
    assert "\n       ^\n" in result.stderr


SEVERAL = """
func.func @forward(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = call @helper(%x) : (tensor<2xf32>) -> tensor<2xf32>
  %1 = stablehlo.multiply %0, %0 : tensor<2xf32>
  return %1 : tensor<2xf32>
}
func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = call @forward(%x) : (tensor<2xf32>) -> tensor<2xf32>
  %1 = stablehlo.exponential %0 : tensor<2xf32>
  return %1 : tensor<2xf32>
}
func.func private @helper(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = stablehlo.sine %x : tensor<2xf32>
  return %0 : tensor<2xf32>
}
"""
SLOPES = {
    None: np.exp(np.sin(X) ** 2) * 2.0 * np.sin(X) * np.cos(X),
    "main": np.exp(np.sin(X) ** 2) * 2.0 * np.sin(X) * np.cos(X),
    "forward": 2.0 * np.sin(X) * np.cos(X),
    "helper": np.cos(X),
}


@pytest.mark.parametrize("entry", SLOPES)
def test_any_function_of_a_file_is_derived(pullback_command, tmp_path, entry):
    path = tmp_path / "several.mlir"
    path.write_text(SEVERAL)
    options = [] if entry is None else ["--entry", entry]
    derived = pullback_command("derive", path, "--vjp", *options).output
    np.testing.assert_allclose(evaluate(derived, X, Y)[1], Y * SLOPES[entry], rtol=1e-5)
    assert derived == pullback_command("dump", path, "--stage", "vjp", *options).output
    loaded = pullback.load(path, entry=entry or "main")
    values = np.load(_saved(tmp_path, loaded(X)))["arr_0"]
    pullback_command(
        "run", path, "--input", _saved(tmp_path, X), *options, "-o", path.with_suffix(".npz")
    )
    close(np.load(path.with_suffix(".npz"))["result_0"], values, ops=2 * FUNCTION + 2)


def _saved(folder: Path, array: object) -> Path:
    np.savez(folder / "array.npz", np.asarray(array))
    return folder / "array.npz"


def test_an_entry_that_is_not_there(pullback_command, code, tmp_path):
    path = tmp_path / "several.mlir"
    path.write_text(SEVERAL)
    result = pullback_command("derive", path, "--vjp", "--entry", "other")
    assert result.exit_code == 2
    assert "the module has no function @other" in result.stderr
    assert "functions of the module: @forward, @main, @helper" in result.stderr
    saved = tmp_path / "saved.mlirbc"
    pullback.load(path).save(saved)
    result = pullback_command("derive", saved, "--vjp", "--entry", "forward")
    assert "the file has no entry `forward`" in result.stderr
    assert "its entries: main" in result.stderr
    result = pullback_command("derive", f"{code}:scalar", "--vjp", "--entry", "scalar")
    assert "--entry is for modules" in result.stderr


def test_an_entry_that_cannot_be_called_has_its_own_name_in_the_error(pullback_command, tmp_path):
    path = tmp_path / "dynamic.mlir"
    path.write_text(
        "func.func @first(%x: tensor<?xf32>) -> tensor<?xf32> { return %x : tensor<?xf32> }"
    )
    result = pullback_command("derive", path, "--vjp", "--entry", "first")
    assert result.exit_code == 2
    assert f"where: {path}, argument 0 of @first" in result.stderr


SHARDED = """
module {
  sdy.mesh @mesh = <["x"=2]>
  func.func public @main(%x: tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>},
      %s: tensor<f32> {tf.aliasing_output = 0 : i32})
      -> (tensor<f32> {jax.result_info = "value", sdy.sharding = #sdy.sharding<@mesh, []>}) {
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %0 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0]
      : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
    %1 = stablehlo.multiply %0, %s : tensor<f32>
    return %1 : tensor<f32>
  }
}
"""


def test_attributes_of_results_go_with_them(pullback_command, tmp_path):
    """A gradient does not lie as the value did, and is no alias of what the value was one of."""
    path = tmp_path / "sharded.mlir"
    path.write_text(SHARDED)
    (line,) = [
        line
        for line in pullback_command("derive", path, "--grad").output.splitlines()
        if "func.func public" in line
    ]
    assert 'tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}' in line
    assert line.endswith("%arg1: tensor<f32>) -> tensor<4xf32> {")
    line = pullback_command("derive", path, "--jvp").output
    assert "tensor<f32> {tf.aliasing_output = 0 : i32}" in line
    assert '(tensor<f32> {jax.result_info = "value", sdy.sharding' in line


def test_a_sparse_derivative_is_saved_with_its_pattern(pullback_command, code, tmp_path):
    model, derived = tmp_path / "model.mlirbc", tmp_path / "sparse.mlirbc"
    namespace = functions()
    pullback.trace(namespace["f"])(X, Y).save(model)
    pullback_command("derive", str(model), "--sparse-jacobian", "--wrt", "1", "-o", str(derived))
    program = pullback.load(derived)
    assert (program.pattern.rows.tolist(), program.pattern.cols.tolist()) == ([0, 1], [0, 1])
    found = np.diag(jax.jacfwd(namespace["f"], 1)(X, Y))
    np.testing.assert_allclose(program(X, Y), found, rtol=1e-6)
    shown = pullback_command("info", str(derived)).stdout
    assert re.search(r"pattern +2 x 2, 2 non-zeros\ncolors +1 \(columns\)\n", shown)


def test_taylor_mode_of_a_saved_program(pullback_command, code, tmp_path):
    model, derived = tmp_path / "model.mlirbc", tmp_path / "jet.mlirbc"
    pullback.trace(functions()["f"])(X, Y).save(model)
    asked = "derive", str(model), "--jet", "3", "--wrt", "0"
    pullback_command(*asked, "-o", str(derived))
    found = pullback.load(derived)(X, Y, [CT, X, Y])
    expected = pullback.jet(lambda x: functions()["f"](x, Y), (X,), ([CT, X, Y],))
    for ours, wanted in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, wanted, rtol=1e-6)
    text = pullback_command(*asked).stdout
    for ours, wanted in zip(evaluate(text, X, Y, CT, X, Y), jax.tree.leaves(found), strict=True):
        np.testing.assert_allclose(ours, wanted, rtol=1e-6)
