"""Switches of engines, where a layout or a file of the engine shows them."""

from meshfit.mesh.rule import Fact, rule


@rule(
    subject="pp",
    message=(
        "{engine} captures CUDA graphs unless told not to, and refuses them with pp={pp}, ep={ep}: "
        "they have to be switched off"
    ),
    option_key="cuda_graphs",
    lists_all=True,
)
def cuda_graphs_switched_off(pp: Fact, ep: Fact = 1) -> Fact:
    """A captured graph can hold neither sends between stages nor uneven token counts."""
    return (pp == 1) & (ep == 1)


def _connections_are_free(tp: Fact, cp: Fact, zero_stage: Fact) -> Fact:
    """Whether Megatron asks for no single queue: nothing to hide, or shards, which want several."""
    return ((tp == 1) & (cp == 1)) | (zero_stage >= 2)


@rule(
    subject="tp",
    message=(
        "with tp={tp}, cp={cp} {engine} starts only with CUDA_DEVICE_MAX_CONNECTIONS=1 on "
        "accelerators before Blackwell"
    ),
    option_key="cuda_device_max_connections",
    lists_all=True,
)
def one_connection_has_to_be_set(
    tp: Fact, cp: Fact = 1, zero_stage: Fact = 0, cuda_device_max_connections: Fact = 0
) -> Fact:
    """One queue keeps collectives in front of the kernels that hide them; shards want several."""
    return _connections_are_free(tp, cp, zero_stage) | (cuda_device_max_connections > 0)


@rule(
    subject="cuda_device_max_connections",
    message=(
        "CUDA_DEVICE_MAX_CONNECTIONS is {cuda_device_max_connections}; tp={tp}, cp={cp} on "
        "accelerators before Blackwell (compute capability {compute_capability}) need 1"
    ),
    lists_all=True,
)
def collectives_need_one_connection(
    cuda_device_max_connections: Fact,
    tp: Fact,
    cp: Fact = 1,
    zero_stage: Fact = 0,
    compute_capability: Fact = 9,
) -> Fact:
    """One queue keeps collectives in front of the kernels that hide them."""
    is_free = _connections_are_free(tp, cp, zero_stage) | (compute_capability >= 10)
    return is_free | (cuda_device_max_connections == 1)


@rule(
    subject="cuda_device_max_connections",
    message=(
        "CUDA_DEVICE_MAX_CONNECTIONS is 1; sharded parameters (zero_stage={zero_stage}) need more "
        "than one, or the variable unset"
    ),
)
def shards_need_several_connections(cuda_device_max_connections: Fact, zero_stage: Fact) -> Fact:
    """One queue would put gathers and scatters in line behind the computation they hide under."""
    return (zero_stage < 2) | (cuda_device_max_connections != 1)


@rule(
    subject="overlap_param_gather",
    message=(
        "overlap_param_gather needs a sharded optimizer (zero_stage is {zero_stage}) and "
        "overlap_grad_reduce (it is {overlap_grad_reduce})"
    ),
    lists_all=True,
)
def parameter_gather_overlaps_sharded_optimizer(
    overlap_param_gather: Fact, zero_stage: Fact = 0, overlap_grad_reduce: Fact = False
) -> Fact:
    """What is gathered are the shards that the optimizer updated."""
    return (overlap_param_gather == 0) | ((zero_stage > 0) & (overlap_grad_reduce != 0))


@rule(
    subject="tp_comm_overlap",
    message="tp_comm_overlap needs sequence parallel; sp is {sp}",
    lists_all=True,
)
def tensor_overlap_needs_sequence_parallel(tp_comm_overlap: Fact, sp: Fact) -> Fact:
    """It splits gathers and scatters, which exist under sequence parallel only."""
    return (tp_comm_overlap == 0) | (sp != 0)


@rule(
    subject="torch_fsdp2",
    message=(
        "torch FSDP2 runs with pp=1, ep=1, untied embeddings and no distributed optimizer; here "
        "pp={pp}, ep={ep}, tie_word_embeddings={tie_word_embeddings}, "
        "distributed_optimizer={distributed_optimizer}"
    ),
    lists_all=True,
)
def torch_fsdp2_runs_alone(
    torch_fsdp2: Fact,
    pp: Fact = 1,
    ep: Fact = 1,
    tie_word_embeddings: Fact = False,
    distributed_optimizer: Fact = False,
) -> Fact:
    """Its wrapping knows neither stages nor experts nor shared weights."""
    alone = (pp == 1) & (ep == 1) & (tie_word_embeddings == 0) & (distributed_optimizer == 0)
    return (torch_fsdp2 == 0) | alone


@rule(
    subject="overlap_moe",
    message=(
        "overlapping the experts' communication needs ep above 1 (it is {ep}), no full recompute "
        "(it is {recompute}), and virtual stages in a pipeline (pp={pp}, vpp={vpp})"
    ),
    lists_all=True,
    option_key="overlap_moe",
)
def expert_overlap_has_room(
    overlap_moe: Fact, ep: Fact = 1, recompute: Fact = "none", pp: Fact = 1, vpp: Fact = 1
) -> Fact:
    """One micro-batch's dispatch hides under another's computation."""
    room = (ep > 1) & (recompute != "full") & ((pp == 1) | (vpp > 1))
    return (overlap_moe == 0) | room


@rule(
    subject="pp",
    message=(
        "virtual stages (vpp={vpp}) without overlapped sends need more than two pipeline ranks; pp "
        "is {pp}"
    ),
)
def interleaving_without_overlap_needs_three_ranks(pp: Fact, vpp: Fact, overlap_p2p: Fact) -> Fact:
    """With two ranks a send and a receive of the same pair would wait for each other."""
    return (vpp == 1) | (overlap_p2p != 0) | (pp > 2)


@rule(
    subject="recompute",
    message="recompute_method={recompute_method!r} goes with recompute=full, not {recompute}",
    lists_all=True,
)
def recompute_method_goes_with_full(recompute: Fact, recompute_method: Fact) -> Fact:
    """A method says which whole layers are computed again."""
    return (recompute_method == "none") | (recompute == "full")


@rule(
    subject="recompute",
    message=(
        "recompute_num_layers={recompute_num_layers} goes with recompute=full and nothing else; "
        "recompute is {recompute}"
    ),
    lists_all=True,
)
def recompute_layers_go_with_full(recompute: Fact, recompute_num_layers: Fact) -> Fact:
    """Full recomputation needs the number of layers, and no other kind takes one."""
    return (recompute_num_layers > 0) == (recompute == "full")


@rule(
    subject="dcp",
    message="decode context parallel of {dcp} does not divide tp={tp}",
    module="attention",
    lists_all=True,
)
def decode_context_within_tp(tp: Fact, dcp: Fact, cp: Fact = 1) -> Fact:
    """It reuses the tensor-parallel ranks, where the prefill has no context parallelism of its own."""
    return (cp > 1) | (tp % dcp == 0)


@rule(
    subject="dcp",
    message=(
        "decode context parallel of {dcp} beside context parallel of the prefill cp={cp} has to be 1, cp "
        "or tp*cp = {tp}*{cp}"
    ),
    module="attention",
    lists_all=True,
)
def decode_context_spans_prefill(tp: Fact, dcp: Fact, cp: Fact) -> Fact:
    """It takes the ranks of the prefill, or all of a stage."""
    return (cp == 1) | (dcp == 1) | (dcp == cp) | (dcp == tp * cp)


@rule(
    subject="dcp",
    message=(
        "decode context parallel of {dcp} is more than the copies of a head: tp={tp} over "
        "{num_key_value_heads} key/value heads"
    ),
    module="attention",
    lists_all=True,
)
def decode_context_within_copies(num_key_value_heads: Fact, tp: Fact, dcp: Fact) -> Fact:
    """Each rank of a group gives up one copy."""
    return (dcp == 1) | (tp <= num_key_value_heads) | (dcp * num_key_value_heads <= tp)


@rule(
    subject="dcp",
    message=(
        "decode context parallel of {dcp} does not divide the query heads of a key/value head, "
        "{num_attention_heads}/{num_key_value_heads}"
    ),
    module="attention",
    lists_all=True,
)
def decode_context_divides_queries(
    num_attention_heads: Fact, num_key_value_heads: Fact, dcp: Fact
) -> Fact:
    """Query heads of a group are gathered and scattered evenly."""
    return num_attention_heads // num_key_value_heads % dcp == 0


@rule(
    subject="dcp",
    message=(
        "decode context parallel of {dcp} needs tp={tp} above the {num_key_value_heads} key/value "
        "heads: only copies of a head can be given up"
    ),
    module="attention",
    lists_all=True,
)
def decode_context_needs_copied_heads(num_key_value_heads: Fact, tp: Fact, dcp: Fact) -> Fact:
    """It divides the cache along the sequence over ranks that hold the same heads."""
    return (dcp == 1) | (tp > num_key_value_heads)


@rule(
    subject="eplb",
    message="balancing experts over ranks (EPLB) needs expert parallelism; ep is {ep}",
    module="experts",
    lists_all=True,
)
def expert_balancing_needs_experts(eplb: Fact, ep: Fact = 1) -> Fact:
    """Without it there is nothing to move."""
    return (eplb == 0) | (ep > 1)


@rule(
    subject="elastic_ep",
    message="elastic expert parallelism needs EPLB (it is {eplb}) and pp=1 (it is {pp})",
    module="experts",
    lists_all=True,
)
def elastic_experts_need_balancing(elastic_ep: Fact, eplb: Fact = False, pp: Fact = 1) -> Fact:
    """Ranks that come and go take experts with them."""
    return (elastic_ep == 0) | ((eplb != 0) & (pp == 1))


@rule(
    subject="attn_dp",
    message="attention dp*cp = {attn_dp}*{attn_cp} does not divide tp={tp}",
    module="attention",
    lists_all=True,
)
def attention_groups_within_tp(tp: Fact, attn_dp: Fact = 1, attn_cp: Fact = 1) -> Fact:
    """Attention takes its data- and context-parallel ranks from the tensor-parallel ones."""
    return tp % (attn_dp * attn_cp) == 0


@rule(
    subject="attn_dp",
    message="full replicas (dp={data_parallel_size}) and data-parallel attention of {attn_dp} exclude each other",
    module="attention",
    lists_all=True,
)
def replicas_or_attention_data_parallel(data_parallel_size: Fact, attn_dp: Fact) -> Fact:
    """A replica is a server of its own."""
    return (data_parallel_size == 1) | (attn_dp == 1)


@rule(
    subject="moe_dp",
    message="MoE data parallel of {moe_dp} does not divide tp={tp}",
    module="experts",
    lists_all=True,
)
def expert_data_within_tp(tp: Fact, moe_dp: Fact) -> Fact:
    """Experts take their data-parallel ranks from the tensor-parallel ones."""
    return tp % moe_dp == 0


@rule(
    subject="moe_dp",
    message="ep*moe_dp = {ep}*{moe_dp} has to be tp={tp}, with pp=1 (it is {pp})",
    module="experts",
    lists_all=True,
)
def expert_groups_fill_tp(ep: Fact, moe_dp: Fact, tp: Fact, pp: Fact = 1) -> Fact:
    """With both, no rank may be left over."""
    return (ep == 1) | (moe_dp == 1) | ((ep * moe_dp == tp) & (pp == 1))


@rule(
    subject="dcp",
    message="decode context parallel of {dcp} and context parallel of the prefill exclude each other",
    module="attention",
    lists_all=True,
)
def one_context_parallel_of_a_server(dcp: Fact, prefill_cp: Fact) -> Fact:
    """Both would divide the same cache."""
    return (dcp == 1) | (prefill_cp == 0)
