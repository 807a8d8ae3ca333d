"""A fixed, spread-out sample of JAX's own corpus; `make conformance` compares all of it."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from tests.conformance import report, sweep
from tests.conformance.comparison import (
    BOTH_REFUSE,
    DIFFERS,
    EQUAL,
    FAILS,
    ONLY_JAX_REFUSES,
    STAGES,
    Verdict,
    compare,
)
from tests.conformance.exceptions import JAX_CANNOT, explanation
from tests.conformance.harnesses import Case, all_cases, sample

SAMPLE = sample(per_primitive=2, share=0.04)


@pytest.fixture(autouse=True)
def float32():
    """The corpus was made without 64-bit types, whatever tests before have set."""
    with jax.enable_x64(False):
        yield


@pytest.mark.parametrize("name", SAMPLE)
def test_equal_to_jax_or_different_for_a_known_reason(name):
    for stage, verdict in compare(SAMPLE[name]).items():
        known = explanation(name, stage, verdict)
        assert known is not None, f"{stage}: {verdict.status}: {verdict.reason}"


def test_the_sample_is_large_and_covers_every_primitive():
    assert len(SAMPLE) >= 400
    primitives = {case.primitive for case in all_cases().values()}
    assert {case.primitive for case in SAMPLE.values()} == primitives
    assert len(primitives) >= 130


def test_the_sample_does_not_change():
    assert list(SAMPLE) == list(sample(per_primitive=2, share=0.04))
    assert SAMPLE["sin_shape_float32_20_20_"].make()[0][0, 0] == pytest.approx(1.8459809)


# -------------------------------------------------------------------------- the instrument


def never_the_same() -> Case:
    """Doubles for whoever asks first, and triples, quadruples, … from then on."""
    asked = []

    def function(x):
        asked.append(x)
        return x * (1 + len(asked))

    return Case("never_the_same", "mul", function, lambda: (np.float32([1, 2]),))


def test_a_difference_is_seen_at_each_stage():
    verdicts = compare(never_the_same())
    assert [verdicts[stage].status for stage in STAGES] == [DIFFERS] * 4
    assert verdicts["jvp"].reason.startswith("error ")


def test_a_function_that_we_cannot_trace_is_seen():
    def function(x):
        # The first call finds the shapes of the results, the second is ours, then comes JAX.
        function.calls += 1
        if function.calls == 2:
            raise ValueError("not now")
        return x

    function.calls = 0
    verdicts = compare(Case("refuses", "copy", function, lambda: (np.float32(1),)))
    assert verdicts["import"] == Verdict(FAILS, "ValueError: not now")


def test_a_verdict_without_explanation_is_reported():
    verdicts = {"sin_x": dict.fromkeys(STAGES, Verdict(DIFFERS, "error 1 of 1"))}
    assert report.unexplained(verdicts)[0] == "sin_x, import: differs: error 1 of 1"


def test_the_page_counts_by_area_and_reason_and_names_what_nothing_explains():
    equal = dict.fromkeys(STAGES, Verdict(EQUAL))
    refused = {"vjp": Verdict(ONLY_JAX_REFUSES, "TypeError: _mul_transpose_right() fails")}
    none = dict.fromkeys(("jvp", "vjp"), Verdict(BOTH_REFUSE, "NotImplementedError: no rule"))
    verdicts = {"sin_x": equal, "mul_a": equal | refused, "mul_b": equal | refused}
    verdicts |= {"eig_x": equal | none, "exp_x": equal | {"jvp": Verdict(DIFFERS, "error 1 of 1")}}
    cases = {name: Case(name, name.split("_")[0], print, tuple) for name in verdicts}
    page = report.render(verdicts, cases)
    assert "| Elementwise | 4 | 4 of 4 | 3 of 4 | 2 of 4 | 4 of 4 |" in page
    assert "| Linear algebra | 1 | 1 of 1 | JAX has none | JAX has none | 1 of 1 |" in page
    assert "- **Elementwise**: `exp`, `mul`, `sin`\n" in page
    assert "### Only JAX raises: 2\n" in page
    assert f"- **{JAX_CANNOT}.** vjp: `mul` 2. Such as `{refused['vjp'].reason}`\n" in page
    assert "mul_a" not in page
    assert "### Not explained: 1\n\n- `exp_x, jvp: differs: error 1 of 1`\n" in page
    assert "| `eig` | jvp 1, vjp 1 | `NotImplementedError: no rule` |" in page


def test_every_primitive_has_its_area():
    areas = {case.primitive: report.area_of(case.primitive) for case in all_cases().values()}
    assert set(areas.values()) == set(report.AREAS)
    assert areas["reduce_prod"] == "Reductions and scans"
    assert areas["reduce_precision"] == "Elementwise"


def test_a_case_that_ends_its_process_is_blamed(tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text('{"begin": "deadly"}\n')
    worker = sweep.Worker(["deadly"], log)
    worker.process = sweep.subprocess.Popen(["sh", "-c", "exit 7"], text=True)
    worker.process.wait()
    assert worker.poll()
    assert sweep.verdicts_in([log])["deadly"]["vjp"] == Verdict(FAILS, "the process ended with 7")
    assert not worker.poll()
