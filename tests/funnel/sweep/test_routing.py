"""Which references a sweep of a mixture of experts needs."""

from meshfit.funnel.sweep.routing import reference_name, routing_groups
from meshfit.mesh.spec import LayoutSpec
from meshfit.record.schema import RoutingGroups
from meshfit.workload.training import PRECISIONS, RuntimeSpec, TrainingSpec

MOE = {"model_type": "mixtral", "num_experts_per_tok": 2}
SEQUENCE_PARALLEL = LayoutSpec(tp=2, sp=True, ep=2, micro_batch_size=4)


def training(capacity: float | None = None) -> TrainingSpec:
    return TrainingSpec(
        sequence_length=64,
        global_batch_size=8,
        precision=PRECISIONS["fp32"],
        runtime=RuntimeSpec(expert_capacity_factor=capacity),
    )


def test_one_reference_serves_all_layouts_where_nothing_depends_on_the_micro_batch() -> None:
    assert routing_groups(MOE, training(), SEQUENCE_PARALLEL) is None
    assert routing_groups({"model_type": "llama"}, training(1.0), SEQUENCE_PARALLEL) is None


def test_limits_are_on_what_one_rank_routes() -> None:
    found = routing_groups(MOE, training(1.0), SEQUENCE_PARALLEL)
    assert found == RoutingGroups(sequences=4, shards=2)


def test_an_auxiliary_loss_is_of_whole_sequences() -> None:
    config = MOE | {"output_router_logits": True}
    found = routing_groups(config, training(), SEQUENCE_PARALLEL)
    assert found == RoutingGroups(sequences=4, shards=1)


def test_references_are_named_after_what_they_stand_for() -> None:
    assert reference_name("full", None) == "full"
    assert reference_name("full", RoutingGroups(sequences=4, shards=2)) == "full-4x2"
