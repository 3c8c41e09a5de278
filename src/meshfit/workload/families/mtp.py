"""Heads for multi-token prediction as DeepSeek V3 has them (arXiv 2412.19437, section 2.2)."""

from dataclasses import replace

from meshfit.workload.blocks.tensor import linear, norm
from meshfit.workload.families.keys import MAX_LAYERS, Config, whole_number
from meshfit.workload.model import LayerSpec, ModelSpec, MtpSpec


def with_mtp(
    model: ModelSpec, config: Config, key: str, *, layer: LayerSpec | None = None, default: int = 0
) -> ModelSpec:
    """``model`` with as many heads as ``key`` says, each with one layer.

    A head norms the hidden state and the next token's embedding, projects both to the hidden dim,
    runs a layer (``layer``; None: one like the model's last), and norms again; embedding and output
    head are the model's own.

    Raises:
        InputError: the number cannot be right.
    """
    depth = whole_number(config, key, default, minimum=0, maximum=MAX_LAYERS)
    if depth == 0:
        return model
    hidden, vectors = model.hidden_size, model.vectors_per_norm
    extra = (
        *(t for name in ("enorm", "hnorm", "norm") for t in norm(name, hidden, vectors=vectors)),
        *linear("eh_proj", 2 * hidden, hidden),
    )
    heads = MtpSpec(depth=depth, layers=(layer or model.layers[-1],), extra=extra)
    return replace(model, mtp=heads)
