"""Every rule by name. Which of them hold for an engine is in that engine's profile.

A rule is one function: its parameters are the facts it needs, its docstring is why. Adding one
means writing it here and naming it in the profiles for which it holds.
"""

import numpy as np

from meshfit.mesh.facts import EVEN_SPLIT, SIZES
from meshfit.mesh.rule import Fact, Rule, rule


def _positive(name: str) -> Rule:
    return Rule(
        name="positive",
        needs=(name,),
        subject=name,
        holds=lambda **values: values[name] >= 1,
        message=f"{name} must be at least 1, not {{{name}}}",
        reason="A degree or a size counts something that is there.",
    )


POSITIVE: tuple[Rule, ...] = tuple(_positive(name) for name in SIZES)
"""Holds for every engine and is checked first: the other rules divide by these."""


# --- ranks ---------------------------------------------------------------------------------------


@rule(
    subject="dp_shard",
    message=(
        "dp_replicate*dp_shard*cp*tp*pp = {dp_replicate}*{dp_shard}*{cp}*{tp}*{pp} is not the "
        "{world} accelerators of the cluster"
    ),
    lists_all=True,
)
def world_size(
    *, world: Fact, dp_replicate: Fact, dp_shard: Fact, cp: Fact, tp: Fact, pp: Fact
) -> Fact:
    """Every rank has one place in the mesh; ep is folded into dp_shard x cp x tp and adds none."""
    return dp_replicate * dp_shard * cp * tp * pp == world


# --- tensor and sequence parallel ----------------------------------------------------------------


@rule(
    subject="tp",
    message="{num_attention_heads} attention heads cannot be divided by tp={tp}",
    module="attention",
    lists_all=True,
)
def attention_heads_divisible(num_attention_heads: Fact, tp: Fact) -> Fact:
    """A head is computed by one rank."""
    return num_attention_heads % tp == 0


@rule(
    subject="tp",
    message=(
        "{num_key_value_heads} key/value heads cannot be divided by tp={tp}: "
        "{engine} does not replicate KV heads"
    ),
    module="attention",
    lists_all=True,
)
def key_value_heads_divisible(num_key_value_heads: Fact, tp: Fact) -> Fact:
    """The column-wise split of k_proj and v_proj cuts between heads, and no head is copied."""
    return num_key_value_heads % tp == 0


@rule(
    subject="tp",
    message="intermediate_size {intermediate_size} cannot be divided by tp={tp}",
    module="mlp",
)
def intermediate_size_divisible(intermediate_size: Fact, tp: Fact) -> Fact:
    """The MLP is split along its inner width, in equal shards."""
    return intermediate_size % tp == 0


@rule(
    subject="tp",
    message=(
        "vocab_size {vocab_size} cannot be divided by tp={tp}: {engine} does not pad the vocabulary"
    ),
    module="embedding",
)
def vocabulary_divisible(vocab_size: Fact, tp: Fact) -> Fact:
    """Embedding and head are split along the vocabulary, in equal shards."""
    return vocab_size % tp == 0


@rule(
    subject="sp",
    message="sequence parallel (sp) with tp={tp} has no ranks to divide between",
    lists_all=True,
)
def sequence_parallel_needs_tensor_parallel(sp: Fact, tp: Fact) -> Fact:
    """Sequence parallel splits activations over the tensor-parallel ranks."""
    return (sp == 0) | (tp > 1)


@rule(
    subject="sequence_length",
    message="sequence_length {sequence_length} cannot be divided by tp={tp} with sequence parallel",
    module="activations",
)
def sequence_divisible_by_tp(sequence_length: Fact, tp: Fact, sp: Fact) -> Fact:
    """Sequence parallel gives every rank an equal part; uneven parts go wrong in silence."""
    return (sp == 0) | (sequence_length % tp == 0)


# --- context parallel ----------------------------------------------------------------------------


@rule(
    subject="sequence_length",
    message=(
        "sequence_length {sequence_length} cannot be divided by 2*cp*tp = 2*{cp}*{tp} "
        "(tp counts with sequence parallel only)"
    ),
    module="attention",
)
def sequence_divisible_by_cp(sequence_length: Fact, cp: Fact, tp: Fact, sp: Fact) -> Fact:
    """Balanced causal shards are two chunks a rank, each split again by sequence parallel."""
    return (cp == 1) | (sequence_length % (2 * cp * np.where(sp, tp, 1)) == 0)


@rule(
    subject="cp",
    message=(
        "{engine} does not run context parallelism yet (cp={cp}); it is planned with the "
        "execution of every strategy"
    ),
    lists_all=True,
)
def context_parallel_not_run(cp: Fact) -> Fact:
    """Attention over sharded keys and values is not part of the runner yet."""
    return cp == 1


# --- pipeline ------------------------------------------------------------------------------------


@rule(
    subject="pp",
    message="{num_hidden_layers} layers cannot fill pp*vpp = {pp}*{vpp} stages",
    module="layers",
)
def layers_fill_stages(num_hidden_layers: Fact, pp: Fact, vpp: Fact) -> Fact:
    """Every stage holds at least one layer."""
    return num_hidden_layers >= pp * vpp


@rule(
    subject="pp",
    message=(
        "{num_hidden_layers} layers cannot be divided evenly over pp*vpp = {pp}*{vpp} stages; "
        "give the layers of every stage (stage_layers)"
    ),
    module="layers",
)
def layers_divisible_by_stages(num_hidden_layers: Fact, pp: Fact, vpp: Fact) -> Fact:
    """Without layers given per stage, the engine splits them evenly or not at all."""
    return num_hidden_layers % (pp * vpp) == 0


@rule(
    subject="stage_layers_length",
    message=(
        "stage_layers names {stage_layers_length} stages, but pp*vpp = {pp}*{vpp} needs one "
        "number each"
    ),
    module="layers",
    lists_all=True,
)
def stage_layers_one_per_stage(stage_layers_length: Fact, pp: Fact, vpp: Fact) -> Fact:
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
    return (vpp == 1) | (schedule == "interleaved_1f1b")


@rule(
    subject="vpp",
    message="the interleaved_1f1b schedule needs vpp of 2 or more; vpp is {vpp}",
)
def interleaving_needs_virtual_stages(schedule: Fact, vpp: Fact) -> Fact:
    """With one stage a rank there is nothing to interleave."""
    return (schedule != "interleaved_1f1b") | (vpp > 1)


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
def interleaving_in_whole_rounds(schedule: Fact, num_micro_batches: Fact, pp: Fact) -> Fact:
    """Interleaved 1F1B as published (arXiv 2104.04473, section 2.2) goes in rounds of pp.

    torch 2.13 ``ScheduleInterleaved1F1B`` also takes uneven rounds (any count that is a multiple
    of ``max(1, count // pp)``); they are left out because bubble and in-flight memory differ.
    """
    whole_rounds = (num_micro_batches >= pp) & (num_micro_batches % pp == 0)
    return (schedule != "interleaved_1f1b") | (pp == 1) | whole_rounds


# --- batch ---------------------------------------------------------------------------------------


@rule(
    subject="global_batch_size",
    message=(
        "global_batch {global_batch_size} is not a multiple of dp*micro_batch = "
        "{sequences_per_micro_batch}"
    ),
    module="batch",
)
def global_batch_divisible(global_batch_size: Fact, sequences_per_micro_batch: Fact) -> Fact:
    """Nothing is dropped and nothing is padded: every step sees exactly the global batch."""
    return global_batch_size % sequences_per_micro_batch == 0


# --- sharded states ------------------------------------------------------------------------------


@rule(
    subject="zero_stage",
    message="{engine} does not run zero_stage={zero_stage}",
    lists_all=True,
)
def zero_stage_known(zero_stage: Fact, zero_stages: Fact) -> Fact:
    """An engine runs the ZeRO stages it has."""
    return np.isin(zero_stage, zero_stages)


@rule(
    subject="zero_stage",
    message=(
        "zero_stage={zero_stage} does not go with dp_shard={dp_shard}: stages 1 to 3 shard over "
        "dp_shard ranks, and stage 0 shards nothing (its ranks are dp_replicate)"
    ),
    lists_all=True,
)
def zero_stage_matches_dp_shard(zero_stage: Fact, dp_shard: Fact) -> Fact:
    """One way to write each layout: dp_shard is above 1 exactly when something is sharded."""
    return (zero_stage > 0) == (dp_shard > 1)


@rule(
    subject="zero_stage",
    message=(
        "zero_stage=1 runs with dp_shard alone in {engine}, not with tp={tp}, pp={pp}, "
        "dp_replicate={dp_replicate}"
    ),
    lists_all=True,
)
def zero1_runs_alone(zero_stage: Fact, tp: Fact, pp: Fact, dp_replicate: Fact) -> Fact:
    """ZeRO-1 is DDP with ``ZeroRedundancyOptimizer``, which knows neither DTensor nor stages."""
    return (zero_stage != 1) | ((tp == 1) & (pp == 1) & (dp_replicate == 1))


# --- experts -------------------------------------------------------------------------------------


@rule(
    subject="ep",
    message="ep={ep} needs a mixture-of-experts model; this one has no experts",
    module="experts",
    lists_all=True,
)
def expert_parallel_needs_experts(num_experts: Fact, ep: Fact) -> Fact:
    """Expert parallel divides experts."""
    return (ep == 1) | (num_experts > 0)


@rule(
    subject="ep",
    message="{num_experts} experts cannot be divided by ep={ep}",
    module="experts",
    lists_all=True,
)
def experts_divisible(num_experts: Fact, ep: Fact) -> Fact:
    """Every rank of an expert group holds as many experts."""
    return num_experts % ep == 0


@rule(
    subject="ep",
    message="ep*etp = {ep}*{etp} does not divide dp_shard*cp*tp = {dp_shard}*{cp}*{tp}",
    module="experts",
)
def experts_fold_into_dense_ranks(dp_shard: Fact, cp: Fact, tp: Fact, ep: Fact, etp: Fact) -> Fact:
    """ep and etp take their ranks from dp_shard x cp x tp; what is left over is expert data."""
    return (dp_shard * cp * tp) % (ep * etp) == 0


@rule(
    subject="ep",
    message=(
        "{engine} does not run expert parallelism yet (ep={ep}); it is planned with the "
        "execution of every strategy"
    ),
    module="experts",
    lists_all=True,
)
def expert_parallel_not_run(ep: Fact) -> Fact:
    """Token dispatch is not part of the runner yet."""
    return ep == 1


@rule(
    subject="etp",
    message="etp={etp} divides experts that are already divided by ep; ep is {ep}",
    module="experts",
    lists_all=True,
)
def expert_tensor_parallel_needs_expert_parallel(etp: Fact, ep: Fact) -> Fact:
    """Without ep the experts follow the dense tensor-parallel split."""
    return (etp == 1) | (ep > 1)


# --- models and policies the engine does not run ---------------------------------------------------


@rule(
    subject="pp",
    message=(
        "the model ties its head to the embedding (tie_word_embeddings), and pp={pp} puts them on "
        "different stages: {engine} does not synchronise the two copies"
    ),
    module="embedding",
    lists_all=True,
)
def tied_embeddings_on_one_stage(tie_word_embeddings: Fact, pp: Fact) -> Fact:
    """A tied weight on two stages needs its gradient summed between them."""
    return (tie_word_embeddings == 0) | (pp == 1)


@rule(
    subject="tp",
    message=(
        "{engine} does not split gpt2 by tp={tp}: its Conv1D layers pack q, k and v into one "
        "transposed weight, and transformers has no tensor-parallel plan for it"
    ),
    module="attention",
    lists_all=True,
)
def gpt2_without_tensor_parallel(model_type: Fact, tp: Fact) -> Fact:
    """An equal cut of a packed weight would not cut between heads."""
    return (model_type != "gpt2") | (tp == 1)


@rule(
    subject="pp",
    message=(
        "{engine} does not split gpt2 by pp={pp}: its learned positions and tied head need a "
        "stage split of their own"
    ),
    module="embedding",
    lists_all=True,
)
def gpt2_without_pipeline(model_type: Fact, pp: Fact) -> Fact:
    """Positions are added inside the first stage, and the head is the embedding."""
    return (model_type != "gpt2") | (pp == 1)


@rule(
    subject="recompute",
    message="{engine} does not run recompute={recompute!r}",
    lists_all=True,
)
def recompute_known(recompute: Fact, recompute_options: Fact) -> Fact:
    """An engine runs the recompute policies it has."""
    return np.isin(recompute, recompute_options)


@rule(
    subject="offload",
    message="{engine} does not run offload={offload!r}",
    lists_all=True,
)
def offload_not_run(offload: Fact) -> Fact:
    """Moving states to the host is not part of the runner yet."""
    return offload == "none"


RULES: dict[str, Rule] = {
    value.name: value for value in list(globals().values()) if isinstance(value, Rule)
}
"""Name -> rule, in the order of this file."""
