"""A fixed, spread-out sample of JAX's own corpus; `make conformance` compares all of it."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from tests.conformance import report, sweep
from tests.conformance.comparison import DIFFERS, FAILS, STAGES, Verdict, compare
from tests.conformance.exceptions import explanation
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


def test_a_case_that_ends_its_process_is_blamed(tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text('{"begin": "deadly"}\n')
    worker = sweep.Worker(["deadly"], log)
    worker.process = sweep.subprocess.Popen(["sh", "-c", "exit 7"], text=True)
    worker.process.wait()
    assert worker.poll()
    assert sweep.verdicts_in([log])["deadly"]["vjp"] == Verdict(FAILS, "the process ended with 7")
    assert not worker.poll()
