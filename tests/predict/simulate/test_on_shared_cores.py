from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from meshfit.predict.simulate.critical_path import critical_path
from meshfit.predict.simulate.on_shared_cores import shared_time
from meshfit.predict.simulate.play_step import play_step
from meshfit.predict.time.step import with_idle, worked
from meshfit.predict.time.terms import TERMS
from tests.predict.builders import cluster, group
from tests.predict.simulate.builders import BATCH, EVEN, machine, unevenly, without_transfers

COMPUTED = [TERMS.index(name) for name in ("compute", "recompute", "optimizer")]


RANKS = 4


def cores(count):
    """Four ranks on so many cores, each with the rates of its share of them."""
    one = cluster(device_type="cpu")
    share, whole = count / RANKS, one.accelerator
    accelerator = replace(
        whole,
        peak_flops_per_s={name: share * rate for name, rate in whole.peak_flops_per_s.items()},
        memory_bytes_per_s=share * whole.memory_bytes_per_s,
    )
    level = replace(one.levels[0], size=RANKS)
    return replace(
        one, accelerator=accelerator, levels=(level,), gpus_per_host=RANKS, shared_cores=count
    )


def column(*moments):
    return np.array(moments, dtype=np.float64)[:, None]


def played(keys, *, count, transfers=False, layers=None):
    """One layout of four ranks on so many cores."""
    of = group(EVEN, BATCH, keys)
    of = of if layers is None else unevenly(of, layers)
    on = machine(of, cores(count))
    return play_step(of, on if transfers else without_transfers(on, of))


def test_time_passes_slower_while_more_compute_than_there_are_cores():
    """One core, at work from 0 to 2 and from 1 to 3: both for a second, which lasts two."""
    later = shared_time(column(0, 1), column(2, 3), cores_each=1.0)
    found = later(column(0, 0.5, 1, 1.5, 2, 3, 5))
    assert found == pytest.approx(column(0, 0.5, 1, 2, 3, 4, 6))


def test_time_in_which_nobody_computes_passes_as_it_does():
    later = shared_time(column(1, 1), column(2, 2), cores_each=1.0)
    assert later(column(1, 2, 2.5)) == pytest.approx(column(1, 3, 3.5))


def test_layouts_have_times_of_their_own():
    later = shared_time(np.array([[0.0, 0.0]] * 2), np.array([[1.0, 3.0]] * 2), cores_each=1.0)
    assert later(np.array([[1.0, 1.0], [2.0, 2.0]])) == pytest.approx(np.array([[2, 2], [3, 4]]))


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_a_balanced_pipeline_leaves_a_core_idle_while_one_stage_works_alone(schedule):
    """Two cores, four stages: of 2 x 3 stage times in which it fills and drains, those with one stage
    at work, 2 of them, leave one of two cores idle, beside 64 micro-batches on half a core each."""
    keys = {"pp": 4, "schedule": schedule}
    shared, whole = (played(keys, count=count) for count in (2, 4))
    alone_s = whole.ends.max() / (64 + 3)
    assert shared.ends.max() == pytest.approx((2 * 64 + 2 * 0.5) * alone_s, rel=2e-3)


def test_no_step_is_shorter_than_all_work_over_all_cores_or_than_with_a_core_each():
    keys = {"pp": 4, "schedule": "1f1b"}
    for layers in ((8, 8, 8, 8), (4, 12, 12, 4), (2, 2, 2, 26)):
        whole, shared = (played(keys, count=count, layers=layers) for count in (4, 2))
        work = sum(
            terms[name][0] for terms in whole.rank_terms for name in ("compute", "optimizer")
        )
        assert shared.step_s[0] >= 0.999 * max(work / 2, whole.step_s[0])
        assert shared.step_s[0] <= 2.001 * whole.step_s[0]


def test_light_stages_leave_their_cores_to_heavy_ones():
    """Four layers and twelve: with half a core to itself a heavy rank would take 1.5 times as long as
    an equal share of the layers."""
    keys = {"pp": 4, "schedule": "1f1b"}
    even, uneven = (played(keys, count=2, layers=one) for one in ((8, 8, 8, 8), (4, 12, 12, 4)))
    assert uneven.step_s[0] < 1.15 * even.step_s[0]


def test_without_a_pipeline_all_ranks_want_their_cores_at_once():
    keys = {"dp_shard": 4}
    of = group(EVEN, BATCH, keys)
    at_half = replace(cores(2), shared_cores=None)
    shared, apart = (play_step(of, machine(of, on)) for on in (cores(2), at_half))
    assert shared.terms() == pytest.approx(apart.terms(), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("keys", [{"pp": 4}, {"pp": 2, "dp_shard": 2}, {"pp": 2, "tp": 2}])
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_terms_sum_to_the_step_and_the_path_runs_through_it(keys, schedule):
    made = played(keys | {"schedule": schedule}, count=2, transfers=True, layers=None)
    assert made.terms().sum(axis=1) == pytest.approx(made.step_s)
    path = critical_path(made, 0)
    assert path[0].start_s == 0.0
    assert path[-1].end_s == pytest.approx(made.step_s[0])
    for before, after in pairwise(path):
        assert after.start_s == pytest.approx(before.end_s, rel=1e-9)


@pytest.mark.parametrize("keys", [{"pp": 4}, {"pp": 2, "dp_replicate": 2}])
def test_tiers_agree_on_balanced_pipelines(keys):
    of = group(EVEN, BATCH, keys)
    on = without_transfers(machine(of, cores(2)), of)
    closed, shown = with_idle(worked(of, on), of, on), play_step(of, on).terms()
    assert shown.sum() == pytest.approx(closed.sum(), rel=0.01)
    assert shown[:, COMPUTED].sum() <= shown.sum()
