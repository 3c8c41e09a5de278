"""Layers over stages, schedules, and micro-batches that fill them."""

from typing import Any

import numpy as np

from meshfit.mesh.facts import EVEN_SPLIT
from meshfit.mesh.rule import Fact, rule
from meshfit.mesh.spec import even_stages
from meshfit.mesh.stage_placement import LOOPED_SCHEDULES, SPLIT_SCHEDULES, V_SCHEDULES


@rule(
    subject="pp",
    message="{num_hidden_layers} layers cannot fill pp*vpp = {pp}*{vpp} stages",
    module="layers",
)
def layers_fill_stages(num_hidden_layers: Fact, pp: Fact, vpp: Fact = 1) -> Fact:
    """Every stage holds at least one layer."""
    return num_hidden_layers >= pp * vpp


def _uneven(num_hidden_layers: Any, pp: Any, vpp: Any, **_: Any) -> dict[str, Any]:
    stages = pp * vpp
    example = ""
    if stages <= min(num_hidden_layers, _STAGES_SHOWN):
        example = f", such as {':'.join(map(str, even_stages(num_hidden_layers, stages)))}"
    return {"example": example}


_STAGES_SHOWN = 64


@rule(
    subject="pp",
    message=(
        "{num_hidden_layers} layers cannot be divided evenly over pp*vpp = {pp}*{vpp} stages; "
        "give the layers of every stage (stage_layers){example}"
    ),
    details=_uneven,
    module="layers",
)
def layers_divisible_by_stages(
    *,
    num_hidden_layers: Fact,
    pp: Fact,
    vpp: Fact = 1,
    stage_layers_given: Fact = False,
    first_stage_layers: Fact = 0,
    last_stage_layers: Fact = 0,
    embedding_counts_as_layer: Fact = False,
    loss_counts_as_layer: Fact = False,
) -> Fact:
    """Without layers given per stage, the engine splits them evenly or not at all.

    Embedding and loss may be made to count as a layer each (Megatron-Core's
    ``--account-for-embedding-in-pipeline-split`` and ``--account-for-loss-in-pipeline-split``).
    """
    counted = (
        num_hidden_layers + 1 * (embedding_counts_as_layer != 0) + 1 * (loss_counts_as_layer != 0)
    )
    is_given = (stage_layers_given != 0) | (first_stage_layers > 0) | (last_stage_layers > 0)
    return is_given | (counted % (pp * vpp) == 0)


@rule(
    subject="first_stage_layers",
    message=(
        "with {first_stage_layers} layers on the first and {last_stage_layers} on the last pipeline "
        "rank (0: not given), the rest of {num_hidden_layers} cannot be divided over the other "
        "ranks of pp={pp}, each in vpp={vpp} virtual stages"
    ),
    module="layers",
)
def layers_between_given_ends(
    num_hidden_layers: Fact,
    pp: Fact,
    vpp: Fact = 1,
    first_stage_layers: Fact = 0,
    last_stage_layers: Fact = 0,
) -> Fact:
    """Given first and last counts, the ranks between them share the remaining layers evenly."""
    rest = num_hidden_layers - first_stage_layers - last_stage_layers
    ranks = pp - 1 * (first_stage_layers > 0) - 1 * (last_stage_layers > 0)
    has_ranks = ranks > 0
    even = rest % ((ranks * has_ranks + (1 - 1 * has_ranks)) * vpp) == 0
    ends = (first_stage_layers % vpp == 0) & (last_stage_layers % vpp == 0)
    is_given = (first_stage_layers > 0) | (last_stage_layers > 0)
    shared = (rest >= 0) & ends & ((has_ranks & even) | (~_as_bool(has_ranks) & (rest == 0)))
    return ~_as_bool(is_given) | shared


def _as_bool(value: Fact) -> Fact:
    """A bool that ``~`` negates (Python's own becomes -1 or -2)."""
    return np.asarray(value, dtype=np.bool_)


@rule(
    subject="layers_per_virtual_stage",
    message=(
        "layers {num_hidden_layers} must be divisible by pp*layers of a virtual stage = "
        "{pp}*{layers_per_virtual_stage}; {layers_per_rank} layers per rank cannot be cut into "
        "chunks of {layers_per_virtual_stage} (integer division would train "
        "{would_train_layers} layers)"
    ),
    details=lambda num_hidden_layers, pp, layers_per_virtual_stage: {
        "layers_per_rank": num_hidden_layers // pp,
        "would_train_layers": num_hidden_layers
        // pp
        // layers_per_virtual_stage
        * layers_per_virtual_stage
        * pp,
    },
    module="layers",
    lists_all=True,
)
def layers_divisible_by_virtual_stage(
    num_hidden_layers: Fact, pp: Fact, layers_per_virtual_stage: Fact
) -> Fact:
    """A rest that integer division drops would be layers that are never trained."""
    return num_hidden_layers % (pp * layers_per_virtual_stage) == 0


@rule(
    subject="pp",
    message=(
        "pp*vpp = {pp}*{vpp} stages are more than the {num_hidden_layers} layers, embedding (counted "
        "as {first_stage_less_layers}) and head (counted as {last_stage_less_layers})"
    ),
    module="layers",
)
def stages_within_layers_and_ends(
    num_hidden_layers: Fact,
    pp: Fact,
    vpp: Fact = 1,
    first_stage_less_layers: Fact = 1,
    last_stage_less_layers: Fact = 1,
) -> Fact:
    """Embedding and head count as layers, so a stage may hold one of them alone."""
    effective = num_hidden_layers + first_stage_less_layers + last_stage_less_layers
    return (pp == 1) | (pp * vpp <= effective)


@rule(
    subject="pp",
    message=(
        "embedding and head count as {first_stage_less_layers} and {last_stage_less_layers} layers, "
        "more than a stage of pp*vpp = {pp}*{vpp} holds"
    ),
    module="layers",
)
def ends_within_a_stage(
    num_hidden_layers: Fact,
    pp: Fact,
    vpp: Fact = 1,
    first_stage_less_layers: Fact = 1,
    last_stage_less_layers: Fact = 1,
) -> Fact:
    """What embedding and head count as has to fit the smallest stage."""
    effective = num_hidden_layers + first_stage_less_layers + last_stage_less_layers
    smallest = effective // (pp * vpp)
    fits = (first_stage_less_layers <= smallest) & (last_stage_less_layers <= smallest)
    return (pp == 1) | (smallest == 0) | fits


@rule(
    subject="stage_layers_length",
    message=(
        "stage_layers names {stage_layers_length} stages, but pp*vpp = {pp}*{vpp} needs one "
        "number each"
    ),
    module="layers",
    lists_all=True,
)
def stage_layers_one_per_stage(stage_layers_length: Fact, pp: Fact, vpp: Fact = 1) -> Fact:
    """A given split says the layers of every stage."""
    return stage_layers_length == pp * vpp


@rule(
    subject="stage_layers_sum",
    message=(
        "stage_layers adds up to {stage_layers_sum} layers, but the model has {num_hidden_layers}"
    ),
    module="layers",
    lists_all=True,
)
def stage_layers_cover_model(stage_layers_sum: Fact, num_hidden_layers: Fact) -> Fact:
    """A given split places every layer once."""
    return (stage_layers_sum == num_hidden_layers) | (stage_layers_sum == EVEN_SPLIT)


@rule(
    subject="stage_layers_min",
    message="stage_layers gives a stage {stage_layers_min} layers; every stage needs at least 1",
    module="layers",
)
def stage_layers_positive(stage_layers_min: Fact) -> Fact:
    """A stage without a layer has nothing to run."""
    return stage_layers_min >= 1


@rule(
    subject="schedule",
    message="{engine} does not run the pipeline schedule {schedule!r}",
    lists_all=True,
)
def schedule_known(schedule: Fact, schedules: Fact) -> Fact:
    """An engine runs the schedules it has."""
    return np.isin(schedule, schedules)


@rule(
    subject="vpp",
    message="vpp={vpp} virtual stages need a pipeline; pp is {pp}",
    lists_all=True,
)
def virtual_stages_need_pipeline(vpp: Fact, pp: Fact) -> Fact:
    """Virtual stages are several stages on one pipeline rank."""
    return (vpp == 1) | (pp > 1)


@rule(
    subject="schedule",
    message="vpp={vpp} virtual stages need the interleaved_1f1b schedule, not {schedule}",
    lists_all=True,
)
def virtual_stages_need_interleaving(vpp: Fact, schedule: Fact) -> Fact:
    """GPipe and 1F1B run one stage a rank (torch's ``PipelineScheduleSingle``)."""
    return (vpp == 1) | np.isin(schedule, (*LOOPED_SCHEDULES, *V_SCHEDULES))


@rule(
    subject="vpp",
    message="the {schedule} schedule needs vpp of 2 or more; vpp is {vpp}",
)
def interleaving_needs_virtual_stages(schedule: Fact, vpp: Fact) -> Fact:
    """With one stage a rank there is nothing to interleave."""
    return ~np.isin(schedule, LOOPED_SCHEDULES) | (vpp > 1)


@rule(
    subject="vpp",
    message="the {schedule} schedule runs two virtual stages on a rank; vpp is {vpp}",
    lists_all=True,
)
def v_schedule_needs_two_stages(schedule: Fact, vpp: Fact) -> Fact:
    """A V puts one stage of each half of the model on every rank."""
    return ~np.isin(schedule, V_SCHEDULES) | (vpp == 2)


@rule(
    subject="pp",
    message="{engine} has no pipeline parallelism (pp={pp})",
    lists_all=True,
)
def pipeline_unknown(pp: Fact) -> Fact:
    """The engine has no ranks of that kind."""
    return pp == 1


@rule(
    subject="vpp",
    message="{engine} has one stage on a pipeline rank (vpp={vpp})",
    lists_all=True,
)
def virtual_stages_unknown(vpp: Fact) -> Fact:
    """The engine does not interleave stages."""
    return vpp == 1


@rule(
    subject="num_micro_batches",
    message=(
        "the 1f1b schedule needs at least pp={pp} micro-batches; you have {num_micro_batches} = "
        "global_batch/(dp*micro_batch); gpipe runs with fewer"
    ),
)
def one_f_one_b_fills_pipeline(schedule: Fact, num_micro_batches: Fact, pp: Fact) -> Fact:
    """torch 2.13 ``Schedule1F1B`` raises with fewer micro-batches than stages."""
    return (schedule != "1f1b") | (num_micro_batches >= pp)


@rule(
    subject="num_micro_batches",
    message=(
        "interleaved schedule needs at least pp={pp} micro-batches (and a multiple of {pp}); "
        "you have {num_micro_batches} = global_batch/(dp*micro_batch)"
    ),
)
def interleaving_in_whole_rounds(num_micro_batches: Fact, pp: Fact, schedule: Fact) -> Fact:
    """Interleaved 1F1B as published (arXiv 2104.04473, section 2.2) goes in rounds of pp.

    torch 2.13 ``ScheduleInterleaved1F1B`` also takes uneven rounds (any count that is a multiple
    of ``max(1, count // pp)``); they are left out because bubble and in-flight memory differ.
    """
    whole_rounds = (num_micro_batches >= pp) & (num_micro_batches % pp == 0)
    return (schedule != "interleaved_1f1b") | (pp == 1) | whole_rounds


@rule(
    subject="num_micro_batches",
    message=(
        "the interleaved_zero_bubble schedule runs {num_micro_batches} micro-batches in "
        "max(1, {num_micro_batches} // pp={pp}) rounds, which must be equally long"
    ),
)
def zero_bubble_in_equal_rounds(num_micro_batches: Fact, pp: Fact, schedule: Fact) -> Fact:
    """torch 2.13 ``ScheduleInterleavedZeroBubble`` raises where rounds do not divide."""
    whole_rounds = num_micro_batches // pp
    rounds = whole_rounds * (whole_rounds >= 1) + 1 * (whole_rounds < 1)
    return (schedule != "interleaved_zero_bubble") | (num_micro_batches % rounds == 0)


@rule(
    subject="num_micro_batches",
    message=(
        "the dualpipe_v schedule needs at least 2*pp = 2*{pp} micro-batches; you have "
        "{num_micro_batches} = global_batch/(dp*micro_batch)"
    ),
)
def dualpipe_fills_stages(num_micro_batches: Fact, pp: Fact, schedule: Fact) -> Fact:
    """torch 2.13 ``ScheduleDualPipeV`` raises with fewer micro-batches than stages."""
    return (schedule != "dualpipe_v") | (num_micro_batches >= 2 * pp)


@rule(
    subject="zero_stage",
    message=(
        "the {schedule} schedule computes gradients of weights apart, from parameters that are still "
        "gathered: with dp_shard={dp_shard} it needs zero_stage=2, not {zero_stage}"
    ),
    lists_all=True,
)
def split_backward_keeps_parameters(schedule: Fact, zero_stage: Fact, dp_shard: Fact = 1) -> Fact:
    """FSDP2 has freed gathered parameters when the second half of a backward comes (torch 2.13's
    ``stage_backward_weight``): its gradients would be lost."""
    frees = (dp_shard > 1) & (zero_stage == 3)
    return ~np.isin(schedule, SPLIT_SCHEDULES) | ~_as_bool(frees)


@rule(
    subject="pp",
    message=(
        "packed documents (data: a .jsonl file) run on one stage in {engine}: the later ones of pp={pp} "
        "do not see where documents end"
    ),
    module="attention",
    lists_all=True,
)
def packed_documents_on_one_stage(packed_documents: Fact, pp: Fact) -> Fact:
    """Stages exchange hidden states, and the end of a document is a token."""
    return (packed_documents == 0) | (pp == 1)


def _bubble(num_micro_batches: Any, pp: Any) -> dict[str, Any]:
    """A balanced pipeline's idle share, (pp - 1) / (m + pp - 1) (2104.04473, section 2.2)."""
    return {"bubble": f"{(pp - 1) / (num_micro_batches + pp - 1):.0%}"}


@rule(
    subject="num_micro_batches",
    message=(
        "{num_micro_batches} micro-batches do not fill pp={pp} stages: a bubble of {bubble} of the "
        "step"
    ),
    details=_bubble,
    module="layers",
)
def micro_batches_fill_pipeline(num_micro_batches: Fact, pp: Fact) -> Fact:
    """With fewer micro-batches than stages, some rank idles all the time."""
    return (pp == 1) | (num_micro_batches < 1) | (num_micro_batches >= pp)
