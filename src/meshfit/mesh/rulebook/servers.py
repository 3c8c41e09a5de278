"""What a server is started with beside its layout: hosts, lengths, and batches."""

from meshfit.mesh.rule import Fact, rule


@rule(
    subject="num_hosts",
    message=(
        "a replica of tp*pp*cp = {tp}*{pp}*{cp} ranks is more than the {gpus_per_host} accelerators of "
        "each of {num_hosts} hosts"
    ),
    module="placement",
    lists_all=True,
)
def replica_within_hosts(
    tp: Fact, num_hosts: Fact, gpus_per_host: Fact, pp: Fact = 1, cp: Fact = 1
) -> Fact:
    """Processes of the server are started on the hosts that it is told of, and on no others."""
    return tp * pp * cp <= num_hosts * gpus_per_host


@rule(
    subject="num_hosts",
    message=(
        "the ranks, dp*tp*pp*cp = {data_parallel_size}*{tp}*{pp}*{cp}, cannot be shared out to "
        "{num_hosts} hosts"
    ),
    module="placement",
    lists_all=True,
)
def ranks_divide_over_hosts(
    num_hosts: Fact, tp: Fact, pp: Fact = 1, cp: Fact = 1, data_parallel_size: Fact = 1
) -> Fact:
    """Every host starts as many."""
    return data_parallel_size * tp * pp * cp % num_hosts == 0


@rule(
    subject="num_hosts",
    message="full replicas (dp={data_parallel_size}) of one server are started on one host, not {num_hosts}",
    module="placement",
    lists_all=True,
)
def replicas_on_one_host(num_hosts: Fact, data_parallel_size: Fact) -> Fact:
    """On several hosts they are servers of their own behind a router."""
    return (num_hosts == 1) | (data_parallel_size == 1)


@rule(
    subject="step_tokens",
    message=(
        "a step of {step_tokens} tokens is less than one token for each of {max_sequences} requests at "
        "once"
    ),
)
def steps_hold_every_request(step_tokens: Fact, max_sequences: Fact) -> Fact:
    """A step gives each running request a token."""
    return step_tokens >= max_sequences


@rule(
    subject="step_tokens",
    message=(
        "without chunked prefill a step of {step_tokens} tokens does not take a request of "
        "{sequence_length}"
    ),
)
def steps_hold_whole_prompts(
    step_tokens: Fact, sequence_length: Fact, chunked_prefill: Fact
) -> Fact:
    """A prompt that is not cut has to go into one step."""
    return (chunked_prefill != 0) | (step_tokens >= sequence_length)


@rule(
    subject="num_redundant_experts",
    message="{num_redundant_experts} redundant experts need balancing (EPLB), which is off",
    module="experts",
)
def redundant_experts_need_balancing(num_redundant_experts: Fact, eplb: Fact) -> Fact:
    """Copies of experts are what is moved."""
    return (num_redundant_experts == 0) | (eplb != 0)
