"""Published parts of a model, and which of them a parameter belongs to by its name.

Published tables file a tensor by its name in transformers: Llama's ``post_attention_layernorm``
counts as attention, GPT-2's position embedding as other, a Nemotron-H MLP (``mixer``) as mixer.
"""

import re
from functools import cache

PARTS: tuple[str, ...] = (
    "embedding",
    "attention_or_mixer",
    "mlp_or_other",
    "routed_expert",
    "shared_expert",
    "norm",
    "lm_head",
    "vision_or_other_tower",
)
"""Published keys of parameters by part."""

_RULES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), part)
    for pattern, part in (
        (r"vis(ion|ual)|audio|multi_modal|mm_", "vision_or_other_tower"),
        (r"lm_head|embed_out", "lm_head"),
        (r"embed_tokens|embed_in|wte|word_embeddings|embeddings\b", "embedding"),
        (r"shared_expert|shared_mlp", "shared_expert"),
        (r"experts", "routed_expert"),
        (r"[aA]ttn|[aA]ttention|mamba|mixer|conv\b|temporal_block", "attention_or_mixer"),
        (r"norm|\bln_", "norm"),
    )
)


@cache
def part_of(name: str) -> str:
    """The part of ``PARTS`` that the tensor ``name`` belongs to: the first rule that matches."""
    for pattern, part in _RULES:
        if pattern.search(name):
            return part
    return "mlp_or_other"
