"""Parameters that each pipeline rank holds, for any kind of model."""

import pytest

from meshfit.engines import engine_profile
from meshfit.funnel.explain.holdings import pipeline_ranks, rank_holding
from meshfit.mesh.spec import make_layout
from meshfit.workload.counts import embedding_parameters, total_parameters
from meshfit.workload.models import catalogue, read_model

NATIVE = engine_profile("native")


@pytest.mark.parametrize("name", sorted(catalogue()))
@pytest.mark.parametrize("keys", [{}, {"pp": 2}, {"pp": 2, "vpp": 2}])
def test_the_ranks_of_a_pipeline_hold_the_whole_model_and_a_tied_embedding_twice(name, keys):
    model = read_model(name)
    held = sum(
        rank_holding(rank, model, NATIVE).total for rank in pipeline_ranks(model, make_layout(keys))
    )
    copies = model.tie_word_embeddings and "pp" in keys
    assert held == total_parameters(model) + copies * embedding_parameters(model)


@pytest.mark.parametrize("name", ["llama-3.1-8b", "deepseek-v3"])
def test_a_v_puts_both_ends_on_one_rank(name):
    model = read_model(name)
    layout = make_layout({"pp": 4, "vpp": 2, "schedule": "zbv_zero_bubble"})
    ranks = pipeline_ranks(model, layout)
    assert [(rank.has_embedding, rank.has_head) for rank in ranks] == [(True, True)] + 3 * [
        (False, False)
    ]
    assert [rank.sends for rank in ranks] == [2, 4, 4, 4]


def test_ranks_of_all_axes_add_up_to_the_model():
    """Experts over ep and etp, the rest over tp, what is whole on each of its ranks."""
    model = read_model("deepseek-v3")
    layout = make_layout({"tp": 8, "ep": 4, "etp": 2})
    [rank] = pipeline_ranks(model, layout)
    holding = rank_holding(rank, model, NATIVE)
    assert holding.experts(layout) * 4 * 2 == holding.expert_cut
    assert holding.shared(layout) * 8 == holding.cut + 8 * holding.whole
    assert holding.total == total_parameters(model)
