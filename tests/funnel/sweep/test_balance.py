"""Splits of layers by measured parts; one launch measures them for real."""

from pathlib import Path

import pytest
from rich.console import Console

from meshfit.errors import InputError
from meshfit.funnel.sweep.balance import (
    RankPart,
    _measured_model,
    balance,
    balance_document,
    costs_of_model,
)
from meshfit.record.schema import PartCost
from meshfit.workload.models import read_model
from tests.funnel.small_job import read_small_job


def cost(name, seconds, *, kept=0, parameters=0):
    return PartCost(
        name=name,
        seconds=seconds,
        kept_bytes=kept,
        parameter_bytes=parameters,
        trained_bytes=parameters,
    )


def with_layout(folder: Path, layout: str):
    return read_small_job(folder, f"layout: {{{layout}}}\n")


def documented(job, parts):
    return balance_document(job, job.layout, job.model, parts)


def test_a_head_of_two_layers_takes_one_from_the_last_stage(tmp_path):
    job = with_layout(tmp_path, "pp: 2")
    layers = [cost(f"layer {i}", 0.010) for i in range(4)]
    document = documented(job, [cost("embedding", 0.0), *layers, cost("head", 0.020)])
    splits = {split["name"]: split for split in document["splits"]}
    assert splits["even"]["seconds"] == pytest.approx([0.020, 0.040])
    assert splits["balanced"]["stage_layers"] == [3, 1]
    assert splits["balanced"]["seconds"] == pytest.approx([0.030, 0.030])
    assert "stage_layers=3:1" in splits["balanced"]["label"]


def test_a_stage_holds_states_and_the_micro_batches_in_flight(tmp_path):
    """1F1B over two stages, four micro-batches: the first stage holds two of them. AdamW in fp32 keeps
    four times the parameters' bytes."""
    job = with_layout(tmp_path, "pp: 2, micro_batch_size: 1")
    layers = [cost(f"layer {i}", 1.0, kept=100, parameters=10) for i in range(4)]
    document = documented(job, [cost("embedding", 0.0), *layers, cost("head", 0.0)])
    assert document["splits"][0]["held"] == [2 * (4 * 10 + 2 * 100), 2 * (4 * 10 + 100)]


def test_nothing_is_balanced_where_nothing_fits(tmp_path):
    job = with_layout(tmp_path, "pp: 2")
    layers = [cost(f"layer {i}", 1.0, kept=2**50) for i in range(4)]
    document = documented(job, [cost("embedding", 0.0), *layers, cost("head", 0.0)])
    assert [split["name"] for split in document["splits"]] == ["even"]
    assert not document["splits"][0]["fits"]
    assert "no split of 4 layers over 2 stages" in document["absent"]["balanced"]


def test_layers_that_were_not_measured_take_what_their_kind_takes():
    model = read_model("deepseek-v3")
    dense, mixed = model.layers[0], model.layers[-1]
    measured = (dense, dense, mixed, mixed, mixed)
    taken = [1.0, 3.0, 5.0, 6.0, 100.0]
    parts = [
        RankPart(seconds=seconds, kept_bytes=0.0, state_bytes=0.0) for seconds in (0.5, *taken, 7.0)
    ]
    seconds = costs_of_model(model.layers, measured, parts).seconds.tolist()
    num_dense = model.layers.count(dense)
    assert seconds == [0.5] + [2.0] * num_dense + [6.0] * (len(model.layers) - num_dense) + [7.0]


@pytest.mark.parametrize(("name", "layers"), [("llama-3.1-8b", 4), ("deepseek-v3", 4)])
def test_a_deep_model_is_cut_to_one_layer_of_each_kind_and_four_at_least(name, layers):
    model = read_model(name)
    measured = _measured_model(model)
    assert len(measured.layers) == layers
    assert set(measured.layers) == set(model.layers)


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        ("dp_shard: 2", "the layout has none: give --layout pp=2"),
        ("pp: 2, recompute: alternate", "treats layers of one kind differently"),
    ],
)
def test_what_cannot_be_balanced_is_refused(tmp_path, layout, message):
    with pytest.raises(InputError, match=message):
        balance(with_layout(tmp_path, layout), out=tmp_path / "out", console=Console(quiet=True))


@pytest.mark.heavy
def test_parts_are_measured_in_one_process_and_stages_follow(tmp_path):
    job = with_layout(tmp_path, "pp: 2")
    end = balance(job, out=tmp_path / "out", console=Console(quiet=True))
    assert [part["name"] for part in end.document["parts"]][::5] == ["embedding", "head"]
    assert sum(end.document["splits"][-1]["stage_layers"]) == 4
    assert (end.folder / "balance.json").is_file()
