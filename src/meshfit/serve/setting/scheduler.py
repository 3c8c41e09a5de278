"""What an engine's scheduler lets into one step."""

from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True, kw_only=True)
class SchedulerSpec:
    """Limits of one replica.

    Attributes:
        max_sequences: requests admitted at once (vLLM ``max_num_seqs``).
        token_budget: tokens that one step of one micro-batch computes, those of decoding requests
            included (vLLM ``max_num_batched_tokens``); longer prompts are cut into chunks.
        kv_capacity_tokens: tokens that the KV cache of the replica holds.
        block_tokens: tokens of one block.
        mixed_steps: whether a step takes chunks of prompts beside decoding requests (vLLM); else
            steps of prompts go first and decoding waits (SGLang without ``--enable-mixed-chunk``).
        micro_batches: batches in flight in a pipeline, one for each stage.
        draft_tokens: tokens guessed ahead and verified in a step of decoding (0: no speculation).
        prefix_caching: whether blocks of shared prefixes are reused.
    """

    max_sequences: int
    token_budget: int
    kv_capacity_tokens: int
    block_tokens: int = 16
    mixed_steps: bool = True
    micro_batches: int = 1
    draft_tokens: int = 0
    prefix_caching: bool = True

    @property
    def capacity_blocks(self) -> int:
        return self.kv_capacity_tokens // self.block_tokens

    @cached_property
    def tokens_per_decode(self) -> int:
        """Tokens that a step computes of one decoding request."""
        return 1 + self.draft_tokens
