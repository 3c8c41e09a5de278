"""Throughputs that people in the field asked about, with the figures they report."""

import json

import pytest
from typer.testing import CliRunner

from meshfit.cli.main import app
from meshfit.errors import InputError
from meshfit.funnel.check.measured import tokens_per_s
from meshfit.job.read import read_job

C15 = """\
schema_version: 1
model: llama-2-13b
workload: {kind: training, sequence_length: 2048, global_batch: 1024 sequences, precision: bf16_mixed}
cluster: 2x8 A800-80G
engine: megatron
layout: {tp: 4, dp_replicate: 4, micro_batch_size: 4}
calibration: none
curves: none
"""


@pytest.fixture
def job(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(C15)
    return path


def check(job, *arguments) -> dict:
    done = CliRunner().invoke(app, ["check", str(job), "--json", *arguments])
    return json.loads(done.stdout)["measured"]


def test_c15_840_tokens_a_second_are_an_mfu_of_a_fifth_and_far_below_what_is_to_be_expected(job):
    """alibaba/Megatron-LLaMA#16; issue 49 there reports 1,845 on like clusters."""
    seen = check(job, "--measured", "840 tokens/s/GPU")
    assert seen["mfu"] == pytest.approx(0.215, abs=0.005)
    assert seen["of_predicted"] < 0.5
    assert "that is no scaling loss" in seen["suspicion"]
    assert seen["links"] == ["dp_replicate over network at 25.0 GB/s", "tp over link at 200 GB/s"]
    other = check(job, "--measured", "1845 tokens/s/GPU")
    assert other["suspicion"] is None
    assert other["of_predicted"] == pytest.approx(1, abs=0.2)


def test_c13_a_rate_that_does_not_say_of_what_is_asked_back(job):
    """ecmwf/WeatherGenerator#1348: 0.715 and 0.350 samples/s on 1 and 2 nodes. Of one rank, two nodes
    do 98 % of what one does; of all, 49 %."""
    with pytest.raises(InputError, match=r"does not say of what.*samples/s total.*samples/s/GPU"):
        tokens_per_s("0.715 samples/s", read_job(job, to_run=False))
    rates = {}
    for nodes, logged in ((1, 0.715), (2, 0.350)):
        job.write_text(C15.replace("2x8", f"{nodes}x1"))
        read = read_job(job, to_run=False)
        for of in ("/GPU", " total"):
            rates[nodes, of] = tokens_per_s(f"{logged} samples/s{of}", read)
    assert rates[2, "/GPU"] / rates[1, "/GPU"] == pytest.approx(0.98, abs=0.005)
    assert rates[2, " total"] / rates[1, " total"] == pytest.approx(0.49, abs=0.005)


@pytest.mark.parametrize(
    ("text", "total"),
    [
        ("1,024 tokens/s total", 1024),
        ("2 samples/s global", 2 * 2048),
        ("100 tokens/s per GPU", 1600),
        ("64 s a step", 1024 * 2048 / 64),
    ],
)
def test_rates_are_read_in_the_words_of_logs(job, text, total):
    assert tokens_per_s(text, read_job(job, to_run=False)) == pytest.approx(total)


@pytest.mark.parametrize(
    "text", ["fast", "840", "0 tokens/s total", "1.2.3 tokens/s total", "0 s a step"]
)
def test_what_is_no_rate_is_refused(job, text):
    with pytest.raises(InputError, match="--measured"):
        tokens_per_s(text, read_job(job, to_run=False))


def test_the_terminal_says_it_too(job):
    done = CliRunner().invoke(app, ["check", str(job), "--measured", "840 tokens/s/GPU"])
    assert "840 an accelerator, MFU 21" in done.output
    assert "tp over link" in done.output
