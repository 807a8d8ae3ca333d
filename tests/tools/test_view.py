"""`pullback view`: what the page shows, and how its parts refer to one another."""

from __future__ import annotations

import html
import json
import os
import re
import sys

import jax
import jax.numpy as jnp
import pytest

import pullback as pb
from pullback.ir import costs
from pullback.ir.lexer import coloured_ir
from pullback.tools.view.explorer import node_data, nodes
from pullback.tools.view.page import page, page_data
from pullback.tools.view.stages import read_stages
from pullback_runtime._install import requirement

SOURCE = """
import jax
import jax.numpy as jnp


@jax.custom_vjp
def clipped(x):
    return x


clipped.defvjp(lambda x: (x, None), lambda _, ct: (jnp.clip(ct, -1.0, 1.0),))


def loss(w, x):
    def step(x, _):
        return clipped(jnp.tanh(x @ w)), None

    y, _ = jax.lax.scan(step, x, None, length=5)
    return jnp.sum(y)  # </script><b>&


example_args = (jnp.ones((4, 4)), jnp.ones((2, 4)))
"""


def line_of(text: str) -> int:
    return next(i for i, line in enumerate(SOURCE.splitlines(), 1) if text in line)


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """The stages, the data and the path of the source of a loss with a loop and a rule."""
    path = tmp_path_factory.mktemp("view") / "looped.py"
    path.write_text(SOURCE)
    namespace: dict = {}
    exec(compile(SOURCE, str(path), "exec"), namespace)
    program = pb.trace(namespace["loss"])(*namespace["example_args"])
    stages = read_stages(program, None)
    return program, stages, page_data(stages, "loss", "loss", None), path


def plain(row: str) -> str:
    return html.unescape(re.sub(r"<[^>]*>", "", row))


def test_the_stages_are_those_of_dump(shown):
    program, _, data, _ = shown
    expected = [
        program.run_passes("stage-rules"),
        program.run_passes("stage-rules").vjp(),
        program.run_passes("stage-rules").vjp().run_passes("to-stablehlo"),
    ]
    for stage, each in zip(data["stages"], expected, strict=True):
        assert "\n".join(map(plain, stage["rows"])) == each.asm().rstrip("\n")
    assert [stage["name"] for stage in data["stages"]] == ["program", "vjp", "stablehlo"]


def ops_of(data, name, stage):
    """Numbers of the ops of a name in a stage."""
    owners = set(data["stages"][stage]["owners"])
    number = data["names"].index(name)
    return [i for i, op in enumerate(data["ops"]) if op[0] == number and i in owners]


def test_an_op_is_followed_from_its_line_to_its_backward_ops(shown):
    _, stages, data, path = shown
    (tanh,) = ops_of(data, "stablehlo.tanh", 0)
    places = [data["places"][place] for place in data["ops"][tanh][7]]
    assert places[0] == [str(path), line_of("jnp.tanh"), "loss.<locals>.step"]
    made = [i for i, op in enumerate(data["ops"]) if tanh in op[6]]
    names = {data["names"][data["ops"][i][0]] for i in made}
    assert names >= {"stablehlo.tanh", "stablehlo.multiply"}  # forward, and ct · (1 - y²)
    second = stages.listings[1]
    backward = [op for op in second.ops if op.origins.get("program") == [tanh]]
    assert any(set(op.results) & second.carriers for op in backward)
    (forward,) = [op for op in backward if op.name == "stablehlo.tanh"]
    assert not set(forward.results) & second.carriers


def test_lowered_ops_come_from_those_of_both_stages(shown):
    _, stages, data, _ = shown
    lowered = stages.listings[2]
    (product,) = ops_of(data, "stablehlo.tanh", 0)
    found = [op for op in lowered.ops if op.origins.get("program") == [product]]
    assert found
    assert all(len(op.origins["vjp"]) == 1 for op in found)
    vjp = stages.listings[1].ops
    assert {vjp[op.origins["vjp"][0]].name for op in found} >= {op.name for op in found}


def test_rows_belong_to_the_op_that_they_begin(shown):
    _, stages, _, _ = shown
    for listing in stages.listings:
        loops = [op for op in listing.ops if op.name == "stablehlo.while"]
        assert loops
        for op in loops:
            start, end = op.rows
            assert "stablehlo.while" in listing.rows[start]
            assert listing.rows[end].strip() == "}"
        for op in listing.ops:
            assert op.name.partition(".")[2].split(".")[-1] in listing.rows[op.rows[0]] or (
                op.name in ("stablehlo.add", "stablehlo.return")  # in the region of a sum
            )


def test_values_have_their_names_and_makers(shown):
    _, stages, data, _ = shown
    program = stages.listings[0]
    (tanh,) = ops_of(data, "stablehlo.tanh", 0)
    op = program.ops[tanh]
    row = program.rows[op.rows[0]]
    assert row.strip().startswith(f"{program.values[op.results[0]]} = stablehlo.tanh ")
    assert f"tanh {program.values[op.operands[0]]} :" in row
    assert program.ops[program.makers[op.operands[0]]].name == "stablehlo.dot_general"


def test_rules_name_their_functions_and_calls(shown):
    _, stages, data, _ = shown
    rules = {rule["name"]: rule for rule in data["rules"]}
    rule = rules["clipped"]
    assert set(rule["functions"]) == {"fwd", "bwd"}
    functions = stages.listings[0].ops
    assert functions[rule["functions"]["bwd"]].function == "clipped.bwd"
    assert [functions[call].callee for call in rule["calls"]] == ["clipped"]


RULES = """
import jax
import jax.numpy as jnp
import pullback as pb


def halved(x):
    return x / 2


@jax.custom_jvp
def root(x):
    return jnp.sqrt(x)


@root.defjvp
def root_jvp(primals, tangents):
    y = root(*primals)
    return y, halved(tangents[0]) / y


@jax.custom_vjp
def clipped(x):
    return x


def clipped_bwd(_, ct):
    return (jnp.clip(ct, -1.0, 1.0),)


clipped.defvjp(lambda x: (x, None), clipped_bwd)


def loss(x):
    return halved(root(clipped(x)))


def main(path):
    pb.trace(loss)(1.0).save(path)
"""


@pytest.mark.parametrize("is_file", [False, True])
def test_the_def_of_a_rule_is_a_line_of_it(tmp_path, is_file):
    """A click there marked nothing: no op is of that line."""
    path, saved = tmp_path / "rooted.py", tmp_path / "loss.mlirbc"
    path.write_text(RULES)
    namespace: dict = {}
    exec(compile(RULES, str(path), "exec"), namespace)
    if is_file:
        namespace["main"](saved)  # whose line is on the stack in which rules are traced
    program = pb.load(saved) if is_file else pb.trace(namespace["loss"])(1.0)
    data = page_data(read_stages(program, None), "loss", "loss", None)
    begins = {text: RULES.splitlines().index(f"def {text}:") + 1 for text in DEFINITIONS.values()}
    for rule in data["rules"]:
        assert rule["lines"] == [[str(path), begins[DEFINITIONS[rule["name"]]]]]
    assert {rule["name"] for rule in data["rules"]} == {*DEFINITIONS}


DEFINITIONS = {"root": "root_jvp(primals, tangents)", "clipped": "clipped_bwd(_, ct)"}


def test_figures_of_lines_and_functions(shown):
    _, _, data, path = shown
    lines = {line: figures for file, line, *figures in data["lines"] if file == str(path)}
    (count, flops, moved), *_ = lines[line_of("jnp.tanh")]
    assert count == 3 + 5  # with the constants and returns of the rule that it calls
    assert flops == 5 * (2 * 2 * 4 * 4 + 2 * 4)
    assert moved == 5 * 4 * ((8 + 16 + 8) + (8 + 8))
    stored = data["stored"]
    assert stored["bytes"] == 4 * (5 * 8 + 5 * 8)  # the carries and what tanh gave
    assert [str(path), line_of("jnp.tanh")] in [value[5] for value in stored["values"]]
    program = set(data["stages"][0]["owners"])
    flops = [flops for op, _, flops, _ in data["functions"] if op in program]
    assert sum(flops) == 5 * (2 * 2 * 4 * 4 + 2 * 4) + 7  # the loop, and the sum behind it


def test_flops_are_those_that_xla_counts():
    def f(a, b, x):
        filtered = jax.lax.conv(x[None, None], x[None, None, :3, :2], (1, 1), "VALID")
        return a @ b + jnp.sum(x, axis=0) * 2.0, filtered

    program = pb.trace(f)(jnp.ones((3, 5)), jnp.ones((5, 7)), jnp.ones((6, 7)))
    found = sum(costs.flops(op) * times for op, times in costs.runs(program.module))
    assert found == program.compile().cost()["flops"]


def test_a_page_is_one_file_that_asks_for_no_other(shown):
    _, stages, data, _ = shown
    text = page(stages, "</script>", "loss")
    assert "<title>&lt;/script&gt;</title>" in text
    assert text.count("</script>") == 2
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text)
    assert json.loads(found)["ops"] == json.loads(json.dumps(data["ops"]))
    rest = text.replace(found, "")
    assert not re.search(r"(?:src|href)\s*=|@import|url\(|https?://|fetch\(|{{", rest)


@pytest.mark.parametrize("size", [6, 1000])
def test_the_pattern_of_a_sparse_derivative_is_drawn(size):
    program = pb.trace(lambda x: jnp.sum((x[1:] - x[:-1]) ** 3))(jnp.ones(size)).sparse_hessian()
    plot = page_data(read_stages(program, None), "", "", None)["pattern"]
    assert plot["text"] == str(program.pattern)
    assert plot["scale"] == (1 if size == 6 else 8)
    count = 6 if size == 6 else 125
    assert plot["size"] == [count, count]
    band = [[i, j] for i in range(count) for j in range(count) if abs(i - j) < 2]
    assert plot["cells"] == band
    assert page_data(read_stages(program.vmap(axis_size=2), None), "", "", None)["pattern"] is None


def file_of(stages, path, written):
    files = page_data(stages, "", "", written)["files"]
    return next(file for file in files if file["path"] == str(path))


def test_sources_that_are_gone_or_newer_are_said_to_be(shown):
    _, stages, _, path = shown
    os.utime(path, (2_000_000_000, 2_000_000_000))
    newer = file_of(stages, path, 1_000_000_000.0)
    assert "changed after the program was saved" in newer["remark"]
    assert len(newer["rows"]) == len(SOURCE.splitlines())
    text = SOURCE
    path.unlink()
    try:
        gone = file_of(stages, path, None)
    finally:
        path.write_text(text)
    assert "this file is not here" in gone["remark"]
    assert gone["rows"] is None


def test_the_command(pullback_command, model, tmp_path):
    out = tmp_path / "page.html"
    result = pullback_command("view", f"{model}:scalar", "--derivative", "grad", "-o", out)
    assert result.exit_code == 0, result.stderr
    assert "gradient (grad)" in out.read_text()
    nowhere = tmp_path / "folder" / "page.html"
    refused = pullback_command("view", f"{model}:scalar", "-o", nowhere)
    assert refused.exit_code == 2
    assert f"cannot write `{nowhere}`: No such file or directory" in refused.stderr
    assert "do:    give another place with -o, in a folder that is there" in refused.stderr
    assert not nowhere.parent.exists()
    refused = pullback_command("view", f"{model}:scalar", "--wrt", "0")
    assert (refused.exit_code, "--wrt says nothing without --derivative" in refused.stderr) == (
        2,
        True,
    )


def test_a_module_of_text_is_its_own_source(pullback_command, tmp_path):
    path = tmp_path / "module.mlir"
    path.write_text(
        "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {\n"
        "  %0 = stablehlo.sine %x : tensor<2xf32>\n"
        "  return %0 : tensor<2xf32>\n}\n"
    )
    out = tmp_path / "page.html"
    assert pullback_command("view", path, "-o", out).exit_code == 0
    (found,) = re.findall(r'id="data">(.*?)</script>', out.read_text())
    data = json.loads(found)
    assert data["files"][0]["path"] == str(path)
    (sine,) = ops_of(data, "stablehlo.sine", 0)
    assert [data["places"][place][:2] for place in data["ops"][sine][7]] == [[str(path), 2]]


def test_a_program_without_derivative_is_shown_without(pullback_command, tmp_path):
    path = tmp_path / "loop.py"
    path.write_text(
        "import jax\n"
        "def f(x):\n"
        "    return jax.pure_callback(lambda x: x, jax.ShapeDtypeStruct((), 'float32'), x)\n"
    )
    command = ("view", f"{path}:f", "--args", "f32[]", "-o", tmp_path / "page.html")
    result = pullback_command(*command)
    assert result.exit_code == 0
    assert "no derivative: " in result.stderr
    assert pullback_command(*command, "--derivative", "vjp").exit_code == 2


def test_colours_leave_the_text_as_it_is():
    text = (
        '#map = affine_map<(d0) -> (d0)>\nmodule @m attributes {a = "</b>&\\""} {\n'
        '  %0:2 = "x.y"(%arg0) <{v = dense<1.0e-3> : tensor<2x!quant.uniform<i8:f32, 0.5>>}> ({\n'
        '  ^bb0(%a: tensor<f32>):\n  }) : (tensor<f32>) -> tensor<f32> loc("a.py":1:2) // é\n}'
    )
    rows = coloured_ir(text)
    assert [plain(row) for row in rows] == text.split("\n")
    assert '<span class="nv">%0</span>:' in rows[2]


def test_ops_of_a_library_have_the_line_that_calls_their_function():
    def f(x):
        y = jax.nn.relu(x)
        return jnp.sum(y)

    stages = read_stages(pb.trace(f)(jnp.ones(3)), None)
    first = stages.listings[0]
    (call,) = [i for i, op in enumerate(first.ops) if op.callee and op.places]
    (maximum,) = [i for i, op in enumerate(first.ops) if op.name == "stablehlo.maximum"]
    assert first.ops[maximum].places == ()
    lines = first.lines(first)
    assert lines[maximum] == lines[call] != ()
    for listing in stages.listings[1:]:
        made = [i for i, op in enumerate(listing.ops) if op.origins.get("program") == [maximum]]
        assert {listing.lines(first)[i] for i in made} == {lines[call]}


def test_a_function_that_two_lines_call_has_no_line_of_calls():
    def f(x):
        y = jax.nn.relu(x)
        return jnp.sum(jax.nn.relu(y) * y)

    first = read_stages(pb.trace(f)(jnp.ones(3)), None).listings[0]
    (maximum,) = [i for i, op in enumerate(first.ops) if op.name == "stablehlo.maximum"]
    assert first.lines(first)[maximum] == ()


def test_node_data_for_model_explorer(shown):
    _, stages, _, path = shown
    first = stages.listings[0]
    found = node_data(first, first)
    (tanh,) = [i for i, op in enumerate(first.ops) if op.name == "stablehlo.tanh"]
    graph, node = nodes(first)[tanh]
    assert (graph, node) == (first.ops[tanh].function, str(tanh - first.functions[graph] - 1))
    at = {name: graphs.get(graph, {"results": {}})["results"] for name, graphs in found.items()}
    assert at["flops of all runs"][node] == {"value": 5 * 8}
    assert at["bytes of all runs"][node] == {"value": 5 * 2 * 8 * 4}
    assert at["line"][node] == {"value": f"{path.name}:{line_of('jnp.tanh')}"}
    (call,) = [i for i, op in enumerate(first.ops) if op.callee == "clipped"]
    assert at["rule"][nodes(first)[call][1]] == {"value": "has bwd, fwd"}
    assert {"value": "bwd of clipped"} in found["rule"]["clipped.bwd"]["results"].values()
    assert "gradient" in found["flops of all runs"][graph]
    assert "gradient" not in found["line"][graph]


NESTED = """
func.func @main(%i: tensor<i32>, %x: tensor<f32>) -> tensor<f32> {
  %0 = "stablehlo.case"(%i) ({
    %1 = "stablehlo.case"(%i) ({
      %2 = stablehlo.sine %x : tensor<f32>
      stablehlo.return %2 : tensor<f32>
    }) : (tensor<i32>) -> tensor<f32>
    %3 = stablehlo.cosine %1 : tensor<f32>
    stablehlo.return %3 : tensor<f32>
  }) : (tensor<i32>) -> tensor<f32>
  %4 = stablehlo.tanh %0 : tensor<f32>
  return %4 : tensor<f32>
}
"""


def test_ops_in_a_region_of_a_region_have_no_node():
    first = read_stages(pb.load(NESTED.encode()), None).listings[0]
    found = {first.ops[i].name.split(".")[1]: node for i, (_, node) in nodes(first).items()}
    assert found["cosine"] == "2"  # as Model Explorer numbers it, behind the two choices
    assert found["tanh"] == "4"
    assert "sine" not in found


def test_what_shows_pages_is_asked_for(pullback_command, model, monkeypatch):
    monkeypatch.setitem(sys.modules, "model_explorer", None)
    result = pullback_command("view", f"{model}:scalar", "--explorer")
    assert result.exit_code == 2
    assert "--explorer wants Model Explorer, which is not installed" in result.stderr
    assert f"pip install {requirement('pullback', 'explorer')}" in result.stderr
    monkeypatch.setattr("webbrowser.open", lambda address: False)
    none = pullback_command("view", f"{model}:scalar")
    assert none.exit_code == 2
    assert "no browser opens here; the page is " in none.stderr
    both = pullback_command("view", f"{model}:scalar", "--explorer", "-o", "page.html")
    assert "--explorer serves pages and writes none" in both.stderr


def test_rows_have_no_locations_left():
    """Those of arguments of blocks have no name in the text, where they are of several ops."""

    def f(x):
        return jnp.sum(jax.lax.top_k(x, 4)[0])  # its derivative scatters by a region

    for listing in read_stages(pb.trace(f)(jnp.ones(4)), None).listings:
        assert not [row for row in listing.rows if "loc" in row]
