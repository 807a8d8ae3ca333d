"""`pullback run`: numbers in, numbers out, and the same ones from every engine."""

from __future__ import annotations

import numpy as np
import pytest

from pullback.tools.run import difference

SQUARE = """
func.func @main(%x: tensor<3xf32>, %y: tensor<3xf32>) -> (tensor<3xf32>, tensor<3xi1>) {
  %0 = stablehlo.multiply %x, %x : tensor<3xf32>
  %1 = stablehlo.add %0, %y : tensor<3xf32>
  %2 = stablehlo.compare LT, %x, %y : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xi1>
  return %1, %2 : tensor<3xf32>, tensor<3xi1>
}
"""
BFLOAT = """
func.func @main(%x: tensor<2xbf16>) -> tensor<2xbf16> {
  %0 = stablehlo.add %x, %x : tensor<2xbf16>
  return %0 : tensor<2xbf16>
}
"""


@pytest.fixture
def square(tmp_path):
    """A module, and its two arguments as files."""
    path = tmp_path / "square.mlir"
    path.write_text(SQUARE)
    np.save(tmp_path / "x.npy", np.array([1, 2, 3], np.float32))
    np.save(tmp_path / "y.npy", np.array([0.5, 4, 0], np.float32))
    return path


def inputs(square) -> list[object]:
    return ["--input", square.parent / "x.npy", "--input", square.parent / "y.npy"]


@pytest.mark.parametrize("engine", [[], ["--interpret"]])
def test_prints_the_results(pullback_command, square, engine):
    result = pullback_command("run", square, *inputs(square), *engine)
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "result 0: f32[3]",
        "  [1.5 8. 9. ]",
        "result 1: bool[3]",
        "  [False True False]",
    ]


def test_reads_the_module_from_stdin(pullback_command, square):
    result = pullback_command("run", "-", *inputs(square), stdin=SQUARE)
    assert "[1.5 8. 9. ]" in result.stdout


def test_says_where_a_nan_comes_from(pullback_command, square, tmp_path):
    path = tmp_path / "root.mlir"
    path.write_text(SQUARE.replace("%1 = stablehlo.add %0, %y", "%1 = stablehlo.power %y, %x"))
    result = pullback_command("run", path, *inputs(square), "--find-nan")
    assert (result.exit_code, result.stdout) == (0, "no result has a NaN\n")
    np.save(tmp_path / "x.npy", np.array([0.5, 2, 0.5], np.float32))
    np.save(tmp_path / "y.npy", np.array([4, -2, -4], np.float32))
    result = pullback_command("run", path, *inputs(square), "--find-nan")
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        f"NaN made by stablehlo.power at {path}:4:8",
        "  operand 0:  float32[3] [ 4. -2. -4.], at [2]: -4.",
        "  operand 1:  float32[3] [0.5 2. 0.5], at [2]: 0.5",
        "  value:      float32[3] [ 2. 4. nan], at [2] (1 of 3)",
        "  reaches:    the result[0] at [2]",
    ]


@pytest.mark.parametrize("option", [["--compare"], ["-o", "out.npz"], ["--backend", "cpu"]])
def test_options_that_say_nothing_about_nans(pullback_command, square, option):
    result = pullback_command("run", square, *inputs(square), "--find-nan", *option)
    assert result.exit_code == 2
    assert "says nothing without results, which --find-nan does not give" in result.stderr


def test_saves_and_reads_back(pullback_command, square, tmp_path):
    saved = tmp_path / "out.npz"
    result = pullback_command("run", square, *inputs(square), "-o", saved)
    assert (result.exit_code, result.stdout) == (0, "")
    with np.load(saved) as results:
        assert results["result_0"].tolist() == [1.5, 8.0, 9.0]
        assert results["result_1"].tolist() == [False, True, False]
    np.savez(tmp_path / "in.npz", np.ones(3, np.float32), np.zeros(3, np.float32))
    again = pullback_command("run", square, "--input", tmp_path / "in.npz")
    assert "[1. 1. 1.]" in again.stdout


NAMED = """
import jax.numpy as jnp
def f(a, b): return a - 2 * b
def tree(params, *rest): return params["w"] + 10 * params["b"][0] + 100 * rest[0]
"""
TREE_ARGS = "{w: f32[2], b: (f32[2],)}, f32[2]"
ONE, TWO, THREE = (np.full(2, value, np.float32) for value in (1, 2, 3))


@pytest.fixture
def named(pullback_command, tmp_path, monkeypatch):
    """Runs `f` or `tree` of NAMED on arrays in `in.npz`, after further files."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "named.py").write_text(NAMED)
    np.save("first.npy", ONE)

    def call(function, arguments, *files, **arrays):
        np.savez("in.npz", **arrays)
        inputs = [option for file in (*files, "in.npz") for option in ("--input", file)]
        return pullback_command("run", f"named.py:{function}", "--args", arguments, *inputs)

    return call


def test_arrays_go_where_their_names_say(named):
    result = named("f", "f32[], f32[]", b=np.float32(10), a=np.float32(1))
    assert result.stdout.splitlines()[1] == "  -19."
    arrays = {"rest[0]": THREE, "params['w']": ONE, "params['b'][0]": TWO}
    assert named("tree", TREE_ARGS, **arrays).stdout.splitlines()[1] == "  [321. 321.]"


def test_arrays_without_names_go_to_the_other_arguments(named):
    numbered = named("f", "f32[2], f32[2]", arr_1=TWO, arr_0=ONE)
    assert numbered.stdout.splitlines()[1] == "  [-3. -3.]"
    results = named("f", "f32[2], f32[2]", result_1=TWO, result_0=ONE)
    assert results.stdout == numbered.stdout
    mixed = named("f", "f32[2], f32[2]", "first.npy", a=TWO)
    assert mixed.stdout.splitlines()[1] == "  [0. 0.]"
    mixed = named("f", "f32[2], f32[2]", b=TWO, arr_0=ONE)
    assert mixed.stdout == numbered.stdout


@pytest.mark.parametrize(
    ("files", "names", "words"),
    [
        ([], ["x", "y"], "`in.npz` has arrays that fit no argument of `named.py:f`: `x`, `y`"),
        ([], ["a", "y"], "fit no argument of `named.py:f`: `y`\n  where: arguments: `a`, `b`"),
        ([], ["arr_0", "arr_2"], "fit no argument of `named.py:f`: `arr_0`, `arr_2`"),
        ([], ["arr_0", "y"], "name each array by the path of its argument"),
        ([], ["b"], "takes 2 arrays, and 1 are given; there is none for `a`"),
        (["in.npz"], ["a"], "two input files hold an array called `a`"),
        (["first.npy"], ["a", "b"], "takes 2 arrays, and 3 are given"),
    ],
)
def test_names_that_do_not_fit_are_an_error(named, files, names, words):
    result = named("f", "f32[2], f32[2]", *files, **dict.fromkeys(names, ONE))
    assert result.exit_code == 2
    assert words in result.stderr


def test_bfloat16_files(pullback_command, tmp_path):
    (tmp_path / "m.mlir").write_text(BFLOAT)
    first, second = tmp_path / "first.npz", tmp_path / "second.npz"
    assert pullback_command("run", tmp_path / "m.mlir", "--random", 3, "-o", first).exit_code == 0
    result = pullback_command("run", tmp_path / "m.mlir", "--input", first, "-o", second)
    assert result.exit_code == 0
    with np.load(first) as once, np.load(second) as twice:
        raw = [np.frombuffer(saved["result_0"].tobytes(), np.uint16) for saved in (once, twice)]
    assert (raw[1] - raw[0]).tolist() == [128, 128]  # doubling is one in the exponent


def test_random_arguments_repeat(pullback_command, square):
    first = pullback_command("run", square, "--random", 7).stdout
    assert first == pullback_command("run", square, "--random", 7).stdout
    assert first != pullback_command("run", square, "--random", 8).stdout


def test_a_number_that_is_given_is_not_random(pullback_command, tmp_path):
    path = tmp_path / "power.py"
    path.write_text("def f(x, n, flag): return (x, n, flag)\nexample_args = (1.5, 4, True)\n")
    for options in (["--args", "f32[2], 4, True"], []):
        result = pullback_command("run", f"{path}:f", *options, "--random", 0)
        assert result.stdout.splitlines()[2:] == [
            "result 1: i32[]",
            "  4",
            "result 2: bool[]",
            "  True",
        ]


def test_compare_reports_the_largest_difference(pullback_command, model):
    result = pullback_command("run", f"{model}:f", "--compare", "--jax", "--tolerance", "1e-6")
    assert result.exit_code == 0
    last = result.stdout.splitlines()[-1]
    assert last.startswith("largest difference of xla and interpreter and jax: ")
    assert float(last.rpartition(": ")[2]) <= 1e-6
    for engine in ("xla", "interpreter", "jax"):
        assert f"  {engine:11}  [1.5 8.5]" in result.stdout


def test_a_difference_above_the_tolerance_fails(pullback_command, monkeypatch, square):
    wrong = [np.zeros(3, np.float32), np.zeros(3, bool)]
    monkeypatch.setattr("pullback.tools.engines.run_interpreter", lambda *_: wrong)
    command = ("run", square, *inputs(square), "--compare", "--tolerance", "0.5")
    result = pullback_command(*command)
    assert result.exit_code == 1
    assert "largest difference of xla and interpreter: 9" in result.stdout
    assert "the difference is larger than 0.5" in result.stderr


def test_closed_over_arrays_and_random_keys(pullback_command, tmp_path):
    path = tmp_path / "closure.py"
    path.write_text(
        "import jax, jax.numpy as jnp\n"
        "table = jnp.arange(1000.0)\n"
        "def f(key, i):\n"
        "    return {'draw': jax.random.uniform(key), 'row': table[i]}\n"
        "example_args = (jax.random.key(0), 7)\n"
    )
    result = pullback_command("run", f"{path}:f", "--compare", "--jax", "--tolerance", "0")
    assert result.exit_code == 0, result.stderr
    assert "xla          7." in result.stdout


@pytest.mark.parametrize("types", ["key, i32[]", "key<rbg>, i32[]"])
def test_types_of_random_keys(pullback_command, tmp_path, types):
    path = tmp_path / "draws.py"
    path.write_text("import jax\ndef f(key, i): return jax.random.uniform(key, (3,)) * i\n")
    options = ("--args", types, "--random", 1, "--jax", "--tolerance", "0")
    result = pullback_command("run", f"{path}:f", *options)
    assert result.exit_code == 0, result.stderr
    types = types.replace("i32", "f32")
    assert "0 checks of rules" in pullback_command("check", f"{path}:f", "--args", types).stdout
    shown = pullback_command("derive", f"{path}:f", "--vjp", "--wrt", "1", "--args", types).stdout
    assert "func.func public @main" in shown


def test_types_are_no_values(pullback_command, tmp_path):
    path = tmp_path / "same.py"
    path.write_text("def same(x): return x\n")
    result = pullback_command("run", f"{path}:same", "--args", "f32[3]", "--find-nan")
    assert result.exit_code == 2
    assert "there are no values for the 1 argument, only types" in result.stderr
    assert "do:    give --input FILE.npy for each of them, or --random SEED" in result.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "there are no values for the 2 arguments\n  do:    give --input FILE.npy for each"),
        (["--input", "x.npy"], "`square.mlir` takes 2 arrays, and 1 are given"),
        (["--input", "x.npy", "--random", "1"], "--input and --random exclude each other"),
        (["--input", "absent.npy"], "cannot read the input `absent.npy`: No such file"),
        (
            ["--input", "square.mlir"],
            "cannot read the input `square.mlir`: it holds objects of Python, or is of another",
        ),
        (["--input", "text.npy"], "the input `text.npy` holds <U1, and no numbers"),
        (["--input", "objects.npz"], "cannot read the input `objects.npz`: it holds objects"),
        (["--random", "-1"], "-1 is not in the range x>=0"),
        (["--random", "0", "--compare", "--tolerance", "-1"], "-1.0 is not in the range x>=0"),
        (["--random", "0", "--compare", "--tolerance", "nan"], "nan is no tolerance; write"),
        (["--random", "0", "--backend", "cuda"], "no backend 'cuda'; present: 'cpu'"),
        (["--random", "0", "-o", "out.txt"], "results are saved as .npz, not as `out.txt`"),
        (["--random", "0", "-o", "no/out.npz"], "cannot write `no/out.npz`: No such file"),
        (["--args", "f32"], "--args is for targets, and `square.mlir` is a module"),
        (["--random", "0", "--jax"], "--jax needs a target"),
        (
            ["--random", "0", "--tolerance", "0.1"],
            "--tolerance says nothing without --compare or --jax",
        ),
        (
            ["--random", "0", "--interpret", "--backend", "cpu"],
            "--backend says nothing without --compare, for the interpreter is no backend",
        ),
    ],
)
def test_each_mistake_has_a_message(pullback_command, square, monkeypatch, options, words):
    monkeypatch.chdir(square.parent)
    np.save("text.npy", np.array(["a"]))
    np.savez("objects.npz", np.array([{}], dtype=object))
    result = pullback_command("run", "square.mlir", *options)
    assert result.exit_code == 2
    assert words in result.stderr


def test_what_a_callback_raises_is_said_in_words(pullback_command, tmp_path):
    path = tmp_path / "calls.py"
    path.write_text(
        "import jax\n"
        "def look_up(x):\n"
        "    raise KeyError('no such table')\n"
        "def f(x):\n"
        "    return jax.pure_callback(look_up, x, x)\n"
    )
    result = pullback_command("run", f"{path}:f", "--args", "f32[2]", "--random", 0)
    assert result.exit_code == 2
    assert f"`{path}:f` failed as it ran: KeyError: 'no such table'" in result.stderr
    assert f"where: {path}:3, in look_up" in result.stderr


def test_an_error_of_a_run_names_the_file(pullback_command, tmp_path):
    path = tmp_path / "calls.mlir"
    path.write_text(
        "func.func @main(%x: tensor<f32>) -> tensor<f32> {\n"
        "  %0 = stablehlo.custom_call @kernel(%x) : (tensor<f32>) -> tensor<f32>\n"
        "  return %0 : tensor<f32>\n}"
    )
    allowed = "--allow-custom-calls", "kernel"
    result = pullback_command("run", path, "--random", 0, "--interpret", *allowed)
    assert result.exit_code == 2
    assert f"where: {path}:2:8" in result.stderr


@pytest.mark.parametrize("command", [["run", "--random", 0], ["derive", "--vjp"], "dump", "info"])
def test_custom_calls_of_a_file_need_a_word(pullback_command, tmp_path, command):
    path = tmp_path / "calls.mlir"
    path.write_text(
        "func.func @main(%x: tensor<i32>) -> tensor<i32> {\n"
        "  %0 = stablehlo.custom_call @kernel(%x) : (tensor<i32>) -> tensor<i32>\n"
        "  return %0 : tensor<i32>\n}"
    )
    name, *flags = [command] if isinstance(command, str) else command
    result = pullback_command(name, path, *flags)
    assert result.exit_code == 2
    assert "the file calls `kernel`, which runs whatever is registered here" in result.stderr
    assert f"where: {path}:2:8, in @main" in result.stderr
    assert "in a shell with --allow-custom-calls kernel" in result.stderr
    result = pullback_command(name, path, *flags, "--allow-custom-calls", "kernel")
    if name == "run":
        assert "nothing is registered on cpu for the custom call `kernel`" in result.stderr
    else:
        assert result.exit_code == 0


def test_a_function_needs_no_word_for_its_custom_calls(pullback_command, model):
    result = pullback_command("run", f"{model}:f", "--allow-custom-calls", "kernel")
    assert result.exit_code == 2
    assert "--allow-custom-calls is for files" in result.stderr


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("func.func @main(", "the file does not parse"),
        ("module {}", "the file holds an empty module"),
        ("func.func private @main(tensor<f32>)", "@main is declared, and has no body"),
        (SQUARE.replace("3x", "9000000000x"), "out of memory: "),
    ],
)
def test_bad_modules(pullback_command, content, words):
    result = pullback_command("run", "-", "--random", "0", stdin=content)
    assert result.exit_code == 2
    assert words in result.stderr


def test_an_absent_module(pullback_command):
    result = pullback_command("run", "absent.mlir", "--random", "0")
    assert result.exit_code == 2
    assert "cannot read 'absent.mlir': No such file" in result.stderr


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ([1.0, 2.0], [1.0, 2.5], 0.5),
        ([np.nan, np.inf], [np.nan, np.inf], 0.0),
        ([np.nan], [1.0], np.inf),
        ([np.inf], [-np.inf], np.inf),
        ([], [], 0.0),
        ([1j], [1 + 1j], 1.0),
        ([True], [False], 1.0),
    ],
)
def test_difference(one, other, expected):
    assert difference(np.array(one), np.array(other)) == expected
