import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshfit.errors import InputError
from meshfit.predict.campaign import (
    Checkpointing,
    best_interval_s,
    campaign,
    checkpoint_bytes,
    wall_factor,
)
from meshfit.workload.budget import BudgetSpec
from meshfit.workload.training import PRECISIONS, AdapterSpec
from tests.predict.builders import cluster, llama_8b, training

HOUR = 3600.0


def whole_run(budget, *, step_s=2.0, topology=None):
    return campaign(
        budget,
        model=llama_8b(),
        training=training(),
        topology=topology or cluster(),
        step_s=step_s,
    )


def failures_played_s(training_s, checkpointing, mtbf_s, restart_s, seed):
    """Wall clock of one run: segments are repeated until one ends before the next failure."""
    random = np.random.default_rng(seed)
    wall, done = 0.0, 0.0
    until_failure = random.exponential(mtbf_s)
    while done < training_s:
        segment = checkpointing.interval_s + checkpointing.save_s
        while until_failure < segment:
            wall += until_failure
            until_failure = random.exponential(mtbf_s)
            while until_failure < restart_s:
                wall += until_failure
                until_failure = random.exponential(mtbf_s)
            wall += restart_s
            until_failure -= restart_s
        wall += segment
        until_failure -= segment
        done += checkpointing.interval_s
    return wall


def test_without_failures_wall_time_is_steps_times_step_time():
    tokens = training().tokens_per_step * 100
    run = whole_run(BudgetSpec(tokens=tokens, price_per_device_h=2.5))
    devices = cluster().num_accelerators
    assert run.steps == 100
    assert run.wall_s == run.training_s == 200.0
    assert run.device_h == pytest.approx(200.0 * devices / HOUR)
    assert run.cost == pytest.approx(2.5 * run.device_h)
    assert run.goodput == 1
    assert run.checkpointing is None


def test_a_last_step_that_is_not_full_is_a_step():
    assert whole_run(BudgetSpec(tokens=training().tokens_per_step + 1)).steps == 2


def test_a_checkpoint_of_8_b_parameters_in_mixed_precision_holds_12_bytes_each():
    assert (
        checkpoint_bytes(llama_8b(), training(precision=PRECISIONS["bf16_mixed"]))
        == 8_030_261_248 * 12
    )


def test_a_checkpoint_of_adapters_leaves_the_frozen_weights_out():
    adapter = AdapterSpec(rank=16, targets=("q_proj", "v_proj"))
    tuned = replace(training(precision=PRECISIONS["bf16_mixed"]), adapter=adapter)
    elements = 32 * 16 * ((4096 + 4096) + (4096 + 1024))
    assert checkpoint_bytes(llama_8b(), tuned) == elements * 12


def test_a_checkpoint_holds_what_the_optimizer_keeps():
    spec = training(precision=PRECISIONS["fp32"])
    sizes = {
        name: checkpoint_bytes(llama_8b(), replace(spec, optimizer=name))
        for name in ("sgd", "adamw_8bit", "muon", "adamw")
    }
    assert sizes["sgd"] == 8_030_261_248 * 4
    assert list(sizes.values()) == sorted(sizes.values())


def test_wall_time_is_that_of_failures_played_out():
    checkpointing = Checkpointing(size_bytes=0, save_s=60.0, interval_s=1800.0)
    mtbf_s, restart_s, training_s = 4 * HOUR, 600.0, 1000 * HOUR
    played = [failures_played_s(training_s, checkpointing, mtbf_s, restart_s, n) for n in range(8)]
    expected = training_s * wall_factor(checkpointing, mtbf_s, restart_s)
    assert np.mean(played) == pytest.approx(expected, rel=0.02)


@given(save_s=st.floats(1, 600), mtbf_h=st.floats(1, 1000))
def test_no_other_interval_loses_noticeably_less_than_the_best(save_s, mtbf_h):
    mtbf_s = mtbf_h * HOUR

    def lost(interval):
        return wall_factor(
            Checkpointing(size_bytes=0, save_s=save_s, interval_s=interval), mtbf_s, 0
        )

    best = lost(best_interval_s(save_s, mtbf_s))
    others = best_interval_s(save_s, mtbf_s) * np.geomspace(0.2, 5, 41)
    assert best <= min(map(lost, others)) * 1.0005


def test_a_checkpoint_takes_what_all_hosts_write_together():
    topology = replace(cluster(), storage_write_bytes_per_s=2e9)
    budget = BudgetSpec(tokens=10**12, mtbf_device_s=50_000 * HOUR)
    saved = whole_run(budget, topology=topology).checkpointing
    assert saved.save_s == pytest.approx(saved.size_bytes / 2e9 / topology.num_hosts)


def test_a_given_time_to_save_needs_no_storage():
    budget = BudgetSpec(tokens=10**12, mtbf_device_s=50_000 * HOUR, save_s=30.0)
    run = whole_run(budget)
    assert run.checkpointing.save_s == 30.0
    assert 0.9 < run.goodput < 1


def test_failures_without_a_time_to_save_are_refused():
    with pytest.raises(InputError, match=r"budget\.save"):
        whole_run(BudgetSpec(tokens=10**12, mtbf_device_s=50_000 * HOUR))


def test_failures_that_leave_no_time_to_train_are_refused():
    budget = BudgetSpec(tokens=10**12, mtbf_device_s=60.0, save_s=600.0)
    with pytest.raises(InputError, match="leaves no time to train"):
        whole_run(budget)


@given(more=st.floats(1, 10))
def test_goodput_falls_with_more_failures(more):
    rare = BudgetSpec(tokens=10**12, mtbf_device_s=50_000 * HOUR, save_s=30.0)
    often = replace(rare, mtbf_device_s=rare.mtbf_device_s / more)
    assert whole_run(often).goodput <= whole_run(rare).goodput
    assert math.isfinite(whole_run(often).wall_s)


def test_saving_far_too_often_is_named_as_the_cause():
    often = BudgetSpec(
        tokens=10**12, mtbf_device_s=50_000 * HOUR, save_s=3600.0, checkpoint_interval_s=1.0
    )
    with pytest.raises(InputError, match=r"1 h 00 min to save after every 1\.00 s"):
        whole_run(often)
