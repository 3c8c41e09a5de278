"""What scaling runs on each number of ranks. No process is started here."""

from pathlib import Path

import pytest

from meshfit.errors import InputError
from meshfit.funnel.sweep.scale import _grown, _job_on, scale

JOB = """
schema_version: 1
model: config.json
workload: {kind: training, sequence_length: 64, global_batch: 4 sequences, precision: fp32}
cluster: {here: {ranks: 4, device: cpu, oversubscribe: true}}
baseline: {dp_replicate: 4}
layout: {dp_shard: 4}
"""
CONFIG = """{"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "vocab_size": 256,
"num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 4}"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "config.json").write_text(CONFIG)
    return tmp_path


def test_strong_scaling_keeps_the_global_batch(job: Path) -> None:
    for ranks in (1, 2, 4):
        read = _job_on(job, ranks, "strong", 1, None)
        assert read.training.global_batch_size == 4
        assert read.topology.num_accelerators == ranks
        assert read.baseline is None


def test_weak_scaling_keeps_the_sequences_of_a_rank(job: Path) -> None:
    batches = [_job_on(job, ranks, "weak", 2, None).training.global_batch_size for ranks in (2, 4)]
    assert batches == [4, 8]


def test_the_axis_grows_and_the_others_stay(job: Path) -> None:
    jobs = [_job_on(job, ranks, "strong", 1, "dp_shard=2,tp=2") for ranks in (2, 4)]
    grown = [_grown(one, "dp_shard") for one in jobs]
    assert [(one.dp_shard, one.tp, one.world_size) for one in grown] == [(1, 2, 2), (2, 2, 4)]
    assert [one.zero_stage for one in grown] == [0, 3]


def test_without_a_layout_one_axis_has_all_ranks(job: Path) -> None:
    text = (job / "job.yaml").read_text()
    (job / "job.yaml").write_text(text.replace("layout: {dp_shard: 4}\n", ""))
    grown = [_grown(_job_on(job, ranks, "strong", 1, None), "tp") for ranks in (1, 2)]
    assert [(one.tp, one.world_size) for one in grown] == [(1, 1), (2, 2)]


def test_ranks_that_the_other_axes_do_not_divide_are_refused(job: Path) -> None:
    read = _job_on(job, 1, "strong", 1, "dp_shard=2,tp=2")
    with pytest.raises(InputError, match="1 ranks are no multiple of 2"):
        _grown(read, "dp_shard")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"axis": "ep"}, "--axis 'ep' does not grow"),
        ({"ranks": [2, 2]}, "at least two numbers of ranks"),
        ({"ranks": [1, 3]}, r"on 3 ranks, layout dp_shard=3,zero_stage=3 is not legal"),
    ],
)
def test_what_cannot_be_scaled_is_refused(job: Path, changes: dict, message: str) -> None:
    from rich.console import Console

    asked = {"kind": "strong", "ranks": [1, 2], "axis": "dp_shard", "layout": None}
    out = job / "out"
    with pytest.raises(InputError, match=message):
        scale(job, **{**asked, **changes}, out=out, console=Console(stderr=True))
    assert not out.exists(), "something ran before all was known to be right"


def test_another_cluster_than_this_machine_is_refused(job: Path) -> None:
    text = JOB.replace(
        "cluster: {here: {ranks: 4, device: cpu, oversubscribe: true}}", "cluster: dgx-h100"
    )
    (job / "job.yaml").write_text(text)
    with pytest.raises(InputError, match="set `cluster: here`"):
        _job_on(job, 2, "strong", 1, None)
