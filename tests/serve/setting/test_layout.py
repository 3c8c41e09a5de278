"""Ranks of layouts."""

from hypothesis import given
from hypothesis import strategies as st

from meshfit.serve.setting.layout import DisaggregatedLayout, ServingLayout

degree = st.integers(1, 16)


@given(degree, degree, degree, degree)
def test_ranks_multiply(replicas, tp, pp, attention_dp):
    layout = ServingLayout(replicas=replicas, tp=tp, pp=pp, attention_dp=attention_dp, ep=tp)
    assert layout.num_accelerators == replicas * pp * tp * attention_dp
    assert layout.ep * layout.expert_tp == layout.ranks_per_stage


def test_labels_name_what_is_not_1():
    assert ServingLayout().label == "single"
    assert ServingLayout(replicas=2, tp=4).label == "replicas=2,tp=4"
    two = DisaggregatedLayout(prefill=ServingLayout(tp=2), decode=ServingLayout(replicas=3))
    assert two.label == "prefill(tp=2) decode(replicas=3)"
    assert two.num_accelerators == 5
    assert two.as_json() == {"prefill": {"tp": 2}, "decode": {"replicas": 3}}
