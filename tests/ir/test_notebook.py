"""What notebooks show of programs, executables, residuals and checks."""

from __future__ import annotations

import html
import re
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb
from pullback.ir.notebook import MOST_ROWS


@jax.custom_jvp
def bounded(x):
    return jnp.tanh(x)


bounded.defjvp(lambda primals, tangents: (bounded(primals[0]), 2.0 * tangents[0]))


@pytest.fixture(scope="module")
def program():
    return pb.trace(lambda x: jnp.sum(bounded(x) * x))(jnp.ones(3))


def plain(text: str) -> str:
    return html.unescape(re.sub(r"<style>.*?</style>|<[^>]*>", "", text, flags=re.S))


def test_a_program_links_calls_and_rules(program):
    shown = program.stage_rules()._repr_html_()
    links, ids = re.findall(r'href="#([^"]*)"', shown), re.findall(r'id="([^"]*)"', shown)
    assert set(links) <= set(ids)
    assert len(ids) == len(set(ids))
    (rule,) = set(re.findall(r'<a href="#([^"]*)">@bounded\.jvp</a>', shown))
    row = re.search(rf'<span id="([^"]*)">[^\n]*href="#{re.escape(rule)}"[^\n]*', shown)
    assert "pullback.custom_jvp_call" in row[0]
    back = re.search(r"<code>@bounded\.jvp</code> <a href=\"#([^\"]*)\"", shown)
    assert back[1] == row[1]
    assert shown.count("<details open>") == 1
    assert "stage_rules()" not in shown
    assert "stage_rules()" in program._repr_html_()
    assert repr(program) in plain(shown)


def test_names_that_mlir_quotes_are_links_too():
    shown = pb.trace(lambda x: jax.jit(lambda x: x * jnp.exp(x))(x) + 1)(1.0)._repr_html_()
    (link,) = re.findall(r'<a href="#([^"]*)">@"&lt;lambda&gt;"</a>', shown)
    assert f'id="{link}"' in shown
    assert "<code>@&quot;&lt;lambda&gt;&quot;</code>" in shown


def test_two_outputs_share_no_anchor(program):
    found = [set(re.findall(r'id="([^"]*)"', program._repr_html_())) for _ in range(2)]
    assert found[0].isdisjoint(found[1])


def test_a_long_program_is_cut():
    def long(x):
        for _ in range(MOST_ROWS):
            x = jnp.sin(x)
        return bounded(x)

    program = pb.trace(long)(1.0)
    rows = len(program.asm().splitlines())
    shown = program._repr_html_()
    assert f"{rows - MOST_ROWS} more rows" in shown
    assert set(re.findall(r'href="#([^"]*)"', shown)) <= set(re.findall(r'id="([^"]*)"', shown))
    assert plain(shown).count("stablehlo.sine") < MOST_ROWS


def test_what_is_stored_is_a_table(program):
    table = program.split_vjp().residuals()
    shown = table._repr_html_()
    assert "<details open><summary>stored for the backward sweep: 12 bytes</summary>" in shown
    assert shown.count("<tr>") == 1 + len(table.stored)
    for residual in table.stored:
        assert html.escape(residual.type) in shown


def test_a_failed_check_is_open_and_names_rule_and_call():
    report = pb.testing.check_rules(
        lambda x: jnp.sum(bounded(x) + jax.nn.relu(x)), np.float32([0.5, -0.2]), raises=False
    )
    shown = report._repr_html_()
    assert report.failed
    first = report.failed[0]
    opened = re.search(r"<details open><summary>FAIL <code>bounded</code>.*?</details>", shown)[0]
    assert html.escape(first.rule) in opened
    assert html.escape(first.where) in opened
    assert html.escape(report.summary) in shown


def test_an_executable_has_its_figures(program):
    executable = program.compile("cpu")
    shown = plain(executable._repr_html_())
    assert repr(executable) in shown
    assert "HloModule" in shown
    assert f"bytes of arguments{executable.memory().arguments}" in shown
    assert f"flops{executable.cost()['flops']:,.0f}" in shown


def test_a_report_on_a_nan_is_a_table():
    report = pb.find_nan(lambda x: jnp.log(x - 2) * jnp.sum(x < 0))(np.float32([2.0, 3.0]))
    shown = report._repr_html_()
    title, *rows = str(report).splitlines()
    assert f"<details open><summary>{html.escape(title)}</summary>" in shown
    assert shown.count("<tr>") == 1 + sum(row[2] != " " for row in rows)
    for row in rows:
        assert html.escape(row.partition(":  ")[2].strip() or row.strip()) in shown


def test_ipython_shows_the_text_of_a_report_on_a_nan():
    report = pb.find_nan(jnp.log)(np.float32(-1))
    said = []
    report._repr_pretty_(types.SimpleNamespace(text=said.append), False)
    assert said == [str(report)]
