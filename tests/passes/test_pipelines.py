"""The textual pipeline syntax: what it means, and what it says about mistakes."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar, Literal

import pytest

from pullback.errors import PipelineError
from pullback.ir.mlir_passes import stock_stage
from pullback.passes import PASSES, PIPELINES, STOCK_PASSES
from pullback.passes.base import Pass, default_of
from pullback.passes.inline_calls import InlineCalls
from pullback.passes.options import build_pass
from pullback.passes.pipelines import format_pipeline, load_pass, parse_pipeline

pytestmark = pytest.mark.whole


@dataclass(frozen=True)
class Everything(Pass):
    """A pass with an option of every type."""

    name: ClassVar[str] = "everything"
    entry: str = "main"
    wrt: tuple[int, ...] | None = None
    names: tuple[str, ...] = ()
    split: bool = False
    limit: float = 1.5
    policy: Literal["store", "recompute"] = "store"


@pytest.mark.parametrize("name", sorted(PASSES))
def test_registry_key_is_the_name_of_the_pass(name: str) -> None:
    pass_class = load_pass(name)
    assert pass_class.name == name
    assert pass_class.__doc__
    fields = dataclasses.fields(pass_class)
    needed = {f.name: 2 for f in fields if default_of(f) is dataclasses.MISSING}
    shown = " ".join(f"{option}=2" for option in needed)
    assert str(pass_class(**needed)) == (f"{name}{{{shown}}}" if needed else name)


def test_an_option_without_a_default_is_asked_for() -> None:
    with pytest.raises(PipelineError, match="pass 'vmap' needs the option 'size'"):
        parse_pipeline("vmap{in-axes=0}")


@pytest.mark.parametrize("name", sorted(STOCK_PASSES))
def test_stock_pass_is_known_to_mlir(name: str) -> None:
    assert name in stock_stage(name)


@pytest.mark.parametrize("name", sorted(PIPELINES))
def test_named_pipeline_parses(name: str) -> None:
    assert parse_pipeline(name) == parse_pipeline(PIPELINES[name])


@pytest.mark.parametrize(
    ("text", "formatted"),
    [
        ("cse", "builtin.module(cse)"),
        ("builtin.module( cse , inline-calls )", "builtin.module(cse,inline-calls)"),
        ("any(cse)", "builtin.module(cse)"),
        (
            "inline-calls{max-ops=3 in-loops},cse",
            "builtin.module(inline-calls{max-ops=3 in-loops=true},cse)",
        ),
        ("inline-calls{max_ops=3}", "builtin.module(inline-calls{max-ops=3})"),
        (
            "func.func(cse,canonicalize),symbol-dce",
            "builtin.module(func.func(cse,canonicalize),symbol-dce)",
        ),
        (
            "chlo-legalize-to-stablehlo",
            "builtin.module(func.func(chlo-legalize-to-stablehlo))",
        ),
        (
            "canonicalize{max-iterations=3 top-down=true}",
            "builtin.module(canonicalize{max-iterations=3 top-down=true})",
        ),
    ],
)
def test_pipeline_text(text: str, formatted: str) -> None:
    stages = parse_pipeline(text)
    assert format_pipeline(stages) == formatted
    assert parse_pipeline(formatted) == stages


def test_option_values() -> None:
    text = "entry=f wrt=0,2 names=a,b split limit=2 policy=recompute"
    assert build_pass(Everything, text) == Everything(
        "f", (0, 2), ("a", "b"), True, 2.0, "recompute"
    )
    assert build_pass(Everything, "") == Everything()
    assert build_pass(Everything, "wrt=none split=0") == Everything()
    assert build_pass(Everything, "wrt=1 split=true") == Everything(wrt=(1,), split=True)
    assert build_pass(Everything, 'wrt={0,1} entry="a b"') == Everything("a b", (0, 1))


@pytest.mark.parametrize("entry", ["a b", 'a"b', "a'b", "a{b", "ü"])
def test_text_of_a_pass_reads_back(entry: str) -> None:
    wanted = Everything(entry, (0, 2), ("x",), True, 0.5, "recompute")
    text = str(wanted).removeprefix("everything{").removesuffix("}")
    assert build_pass(Everything, text) == wanted


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("entri=f", "has no option 'entri'\n  do:    did you mean entry?"),
        ("wrt=0,x", "option 'wrt' takes an integer or several, separated by commas, and got '0,x'"),
        ("wrt=0_1", "option 'wrt' takes an integer or several, separated by commas, and got '0_1'"),
        ("split=maybe", "option 'split' takes true or false, and got 'maybe'"),
        ("limit=much", "option 'limit' takes a number, and got 'much'"),
        ("policy=all", "option 'policy' takes one of store, recompute, and got 'all'"),
        ("entry", "option 'entry' needs a value, as entry=…"),
        ("entry=f entry=g", "option 'entry' is given twice"),
        ("entry=f }", "cannot read options at '}'"),
    ],
)
def test_bad_option(text: str, words: str) -> None:
    with pytest.raises(PipelineError) as caught:
        build_pass(Everything, text)
    assert words in str(caught.value)
    assert "pass 'everything'" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("inlin-calls", "no pass is named 'inlin-calls'\n  do:    did you mean inline-calls?"),
        ("to-stablehl", "did you mean to-stablehlo or"),
        ("cse2", "did you mean cse?"),
        ("func.func(css)", "no pass is named 'css'\n  do:    did you mean cse"),
        ("inline-calls{", "expected '}'"),
        ("inline-calls{max-ops=x}", "option 'max-ops' takes an integer, and got 'x'"),
        ("erase-dead{a=1}", "pass 'erase-dead' takes no options, and got 'a'"),
        ("func.func(inline-calls)", "do:    move inline-calls out of func.func(…)"),
        (
            "to-stablehlo{a=1}",
            "'to-stablehlo' has no option 'a'\n  do:    leave passes of it out by",
        ),
        (
            "to-stablehlo{without=simplifi}",
            "has no pass 'simplifi'\n  do:    did you mean simplify?",
        ),
        ("cse,,cse", "expected the name of a pass\n    cse,,cse\n        ^"),
        ("cse)", "expected ',' or the end"),
        ("builtin.module(cse", "expected ')'"),
        ("builtin.module{cse}", "no pass is named 'builtin.module'"),
        ("builtin.module(" * 2000 + "cse" + ")" * 2000, "too many brackets inside one another"),
        ("cse{foo=1}", "MLIR refuses the pipeline element 'cse{foo=1}'"),
    ],
)
def test_bad_pipeline(text: str, words: str) -> None:
    with pytest.raises(PipelineError) as caught:
        parse_pipeline(text)
    assert words in str(caught.value)


def test_options_reach_the_pass() -> None:
    assert parse_pipeline("inline-calls{max-ops=7}") == (InlineCalls(max_ops=7),)
