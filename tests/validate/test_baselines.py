import pytest

from meshfit.validate.baselines import (
    ORDER_RULES,
    best_naive_order,
    constant_fraction_figures,
    textbook_figures,
)
from meshfit.validate.frameworks import read_job
from meshfit.validate.predictions import RowPrediction
from tests.validate.builders import row

GIB = 2**30


def read(**columns):
    one = row(**columns)
    return RowPrediction(row=one, job=read_job(one))


def textbook(**columns):
    return textbook_figures([read(**columns)])["ROW-1"]


def test_states_are_sixteen_bytes_a_parameter_undivided():
    own = textbook(zero_stage="0", n_gpus="1", dp="1", recompute="full", gbs="1")
    activations = 8192 * 4096 * 2 * 32
    assert own.allocated == pytest.approx(16 * 8_030_261_248 + activations)


def test_a_stage_divides_what_it_shards():
    whole = textbook(zero_stage="0").allocated
    first, third = textbook(zero_stage="1").allocated, textbook(zero_stage="3").allocated
    parameters = 8_030_261_248
    assert whole - first == pytest.approx(12 * parameters * 7 / 8)
    assert first - third == pytest.approx(4 * parameters * 7 / 8)


def test_one_figure_stands_for_every_kind_of_memory():
    own = textbook()
    assert own.allocated == own.reserved == own.device


def test_what_exceeds_the_capacity_does_not_fit():
    assert textbook(capacity_bytes=str(GIB)).verdict == "does_not_fit"
    assert textbook(capacity_bytes=str(10_000 * GIB)).verdict == "fits"


def test_recomputing_core_attention_saves_nothing_where_the_kernel_keeps_no_scores():
    assert textbook(recompute="none").allocated == textbook(recompute="selective").allocated


def test_a_constant_fraction_is_right_at_the_median():
    times = ("2.0", "4.0", "8.0")
    rows = [read(id=f"ROW-{n}", time_s=time) for n, time in enumerate(times)]
    figures = constant_fraction_figures(rows)
    assert [own.step_time for own in figures.values()] == pytest.approx([4.0] * 3)


def test_without_measured_times_there_is_no_fraction():
    assert constant_fraction_figures([read(time_s="")]) == {}


def test_the_best_rule_is_the_one_that_orders_most_pairs():
    rows = [
        row(id="a", tp="8", pp="1", rank_group="g", tokens_s_gpu="100"),
        row(id="b", tp="1", pp="8", rank_group="g", tokens_s_gpu="200"),
    ]
    best = best_naive_order(rows, wide=False)
    assert best.rule == "least tp, then least pp"
    assert best.score.pairs_right == 1.0
    assert best.rule in ORDER_RULES


def test_deep_pipelines_are_still_told_apart():
    rows = [
        row(id="a", tp="8", pp="63", rank_group="g", tokens_s_gpu="200"),
        row(id="b", tp="8", pp="64", rank_group="g", tokens_s_gpu="100"),
    ]
    assert best_naive_order(rows, wide=False).score.pairs_right == 1.0
