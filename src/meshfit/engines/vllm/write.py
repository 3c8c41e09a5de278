"""vLLM's options for a layout; None: the option is left out."""

from meshfit.engines.layout_options import Options
from meshfit.engines.serving_file import BudgetNames, Degrees
from meshfit.errors import InputError

BUDGET = BudgetNames(
    longest="--max-model-len",
    memory_fraction="--gpu-memory-utilization",
    cache_type="--kv-cache-dtype",
    eight_bits="fp8",
    page_tokens="--block-size",
    step_tokens="--max-num-batched-tokens",
    max_sequences="--max-num-seqs",
    no_graphs="--enforce-eager",
)


def layout_options(layout: Degrees, has_experts: bool) -> Options:
    """Every option that the layout decides.

    Data-parallel ranks of a mixture of experts share its experts; those of another model are replicas.

    Raises:
        InputError: vLLM has no option for a part of it.
    """
    ranks = layout.tp * layout.attention_dp
    if has_experts and layout.replicas > 1:
        raise InputError(
            f"vLLM shares experts over --data-parallel-size: {layout.replicas} replicas of a mixture of "
            f"experts are servers of their own; write replicas=1 and start it {layout.replicas} times"
        )
    if not has_experts and layout.attention_dp > 1:
        raise InputError("vLLM has attention_dp above 1 for mixtures of experts alone")
    if layout.ep not in (1, ranks):
        raise InputError(
            f"vLLM spreads experts over all {ranks} ranks of a stage or none, not ep={layout.ep}"
        )
    data = layout.replicas * layout.attention_dp
    return {
        "--tensor-parallel-size": layout.tp,
        "--pipeline-parallel-size": layout.pp if layout.pp > 1 else None,
        "--data-parallel-size": data if data > 1 else None,
        "--enable-expert-parallel": layout.ep > 1 or None,
    }
