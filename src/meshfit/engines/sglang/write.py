"""SGLang's options for a layout; None: the option is left out."""

from meshfit.engines.layout_options import Options
from meshfit.engines.serving_file import BudgetNames, Degrees
from meshfit.errors import InputError

BUDGET = BudgetNames(
    longest="--context-length",
    memory_fraction="--mem-fraction-static",
    cache_type="--kv-cache-dtype",
    eight_bits="fp8_e4m3",
    page_tokens="--page-size",
    step_tokens="--chunked-prefill-size",
    max_sequences="--max-running-requests",
    no_graphs="--disable-cuda-graph",
)


def layout_options(layout: Degrees, _has_experts: bool) -> Options:
    """Every option that the layout decides: groups that share out sequences are part of ``--tp-size``.

    Raises:
        InputError: SGLang has no option for a part of it.
    """
    if layout.replicas > 1 and layout.attention_dp > 1:
        raise InputError(
            f"SGLang has either full replicas or data-parallel attention; write replicas=1 and start it "
            f"{layout.replicas} times"
        )
    sizes = {
        "--pp-size": layout.pp,
        "--dp-size": layout.replicas,
        "--attn-dp-size": layout.attention_dp,
        "--ep-size": layout.ep,
    }
    return {
        "--tp-size": layout.tp * layout.attention_dp,
        **{name: size if size > 1 else None for name, size in sizes.items()},
        "--enable-dp-attention": None,
    }
