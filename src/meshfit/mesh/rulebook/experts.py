"""Experts over ranks that other axes count too."""

from meshfit.mesh.rule import Fact, rule


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
    message="ep={ep} does not divide the data-parallel size {data_parallel_size}",
    module="experts",
    lists_all=True,
)
def experts_fold_into_data_parallel(data_parallel_size: Fact, ep: Fact) -> Fact:
    """ep takes its ranks from the data-parallel ones; what is left over is expert data."""
    return data_parallel_size % ep == 0


@rule(
    subject="ep",
    message=(
        "{engine} spreads experts over all ranks of a model or none: ep={ep} is neither 1 nor "
        "dp*cp*tp = {data_parallel_size}*{cp}*{tp}"
    ),
    module="experts",
    lists_all=True,
)
def experts_over_every_rank(ep: Fact, tp: Fact, data_parallel_size: Fact = 1, cp: Fact = 1) -> Fact:
    """Expert parallelism is a switch; its group is data x context x tensor parallel."""
    return (ep == 1) | (ep == tp * data_parallel_size * cp)


@rule(
    subject="ep",
    message="ep={ep} does not divide tp={tp}, from which {engine} takes the experts' ranks",
    module="experts",
    lists_all=True,
)
def experts_within_tensor_parallel(ep: Fact, tp: Fact) -> Fact:
    """Each expert is split over the tp / ep ranks that are left."""
    return tp % ep == 0


@rule(
    subject="num_redundant_experts",
    message=(
        "with EPLB, {num_experts} experts and {num_redundant_experts} copies cannot be divided by "
        "ep={ep}"
    ),
    module="experts",
)
def balanced_experts_divisible(
    eplb: Fact, num_experts: Fact, ep: Fact, num_redundant_experts: Fact = 0
) -> Fact:
    """Balancing moves experts between ranks that hold as many each."""
    return (eplb == 0) | ((num_experts + num_redundant_experts) % ep == 0)


@rule(
    subject="ep",
    message="{engine} has no expert parallelism (ep={ep})",
    module="experts",
    lists_all=True,
)
def expert_parallel_unknown(ep: Fact) -> Fact:
    """The engine has no ranks of that kind."""
    return ep == 1


@rule(
    subject="etp",
    message="{engine} has no tensor parallelism of experts beside ep (etp={etp})",
    module="experts",
    lists_all=True,
)
def expert_tensor_parallel_unknown(etp: Fact) -> Fact:
    """Under ep, experts stay whole."""
    return etp == 1


@rule(
    subject="sp",
    message="{engine} runs ep={ep} with tp={tp} under sequence parallel only",
    module="experts",
    lists_all=True,
)
def experts_need_sequence_parallel(ep: Fact, tp: Fact, sp: Fact = True) -> Fact:
    """Otherwise every tensor-parallel rank would send the same tokens."""
    return (ep == 1) | (tp == 1) | (sp != 0)


@rule(
    subject="sp",
    message=(
        "{engine} runs ep={ep} with tp={tp} and etp={etp} under sequence parallel only: ranks with "
        "other experts would all send the same tokens; with etp={tp} they have parts of the same"
    ),
    module="experts",
    lists_all=True,
)
def tokens_sent_once(ep: Fact, tp: Fact, etp: Fact = 1, sp: Fact = True) -> Fact:
    """A token reaches each of its experts once, whether ranks have shards of a sequence or all of it."""
    return (ep == 1) | (tp == etp) | (sp != 0)


@rule(
    subject="etp",
    message=(
        "etp={etp} does not divide tp={tp}: in {engine} tensor-parallel ranks cut the width of experts"
    ),
    module="routed experts",
    lists_all=True,
)
def expert_width_cut_within_tensor_parallel(etp: Fact, tp: Fact) -> Fact:
    """Ranks that gather each other's tokens are neighbours, with shards of the same sequences."""
    return tp % etp == 0


@rule(
    subject="etp",
    message="an expert bias cannot be split: etp={etp} has to be 1",
    module="routed experts",
    lists_all=True,
)
def expert_bias_needs_whole_experts(moe_bias: Fact, etp: Fact) -> Fact:
    """Each rank of an expert would add the bias again."""
    return (moe_bias == 0) | (etp == 1)


@rule(
    subject="zero_stage",
    message=(
        "zero_stage={zero_stage} takes all ranks to hold the same parameters, and with ep={ep} they hold "
        "other experts; {engine} spreads these at stage 2 or 3, or under tp or pp"
    ),
    module="experts",
    lists_all=True,
)
def experts_beyond_plain_replicas(ep: Fact, zero_stage: Fact, tp: Fact, pp: Fact) -> Fact:
    """DDP and ``ZeroRedundancyOptimizer`` know neither shards nor groups of some ranks."""
    return (ep == 1) | (zero_stage > 1) | ((zero_stage == 0) & ((tp > 1) | (pp > 1)))


@rule(
    subject="pp",
    message=(
        "the routers' auxiliary loss takes its means over all layers, which pp={pp} puts on different "
        "stages; output_router_logits: false leaves it out"
    ),
    module="experts",
    lists_all=True,
)
def auxiliary_loss_on_one_stage(auxiliary_loss: Fact, pp: Fact) -> Fact:
    """A product of sums over layers (transformers' definition) is no sum over stages."""
    return (auxiliary_loss == 0) | (pp == 1)


@rule(
    subject="cp",
    message=(
        "the routers' auxiliary loss takes its means over whole sequences, which cp={cp} cuts; "
        "output_router_logits: false leaves it out"
    ),
    module="experts",
    lists_all=True,
)
def auxiliary_loss_of_whole_sequences(auxiliary_loss: Fact, cp: Fact) -> Fact:
    """Ranks with other parts of the same sequences would each have a loss of their own."""
    return (auxiliary_loss == 0) | (cp == 1)


@rule(
    subject="cp",
    message=(
        "expert_capacity_factor limits what experts take of a rank's tokens, which cp={cp} takes from "
        "all over a sequence; leaving it out drops no tokens"
    ),
    module="experts",
    lists_all=True,
)
def expert_capacity_of_whole_sequences(expert_capacity: Fact, num_experts: Fact, cp: Fact) -> Fact:
    """Which tokens are dropped would depend on how the sequence is cut."""
    return (expert_capacity == 0) | (num_experts == 0) | (cp == 1)


@rule(
    subject="etp",
    message="etp={etp} divides experts that are already divided by ep; ep is {ep}",
    module="experts",
    lists_all=True,
)
def expert_tensor_parallel_needs_expert_parallel(etp: Fact, ep: Fact) -> Fact:
    """Without ep the experts follow the dense tensor-parallel split."""
    return (etp == 1) | (ep > 1)
