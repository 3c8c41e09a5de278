"""Greedy generation, one token at a time, with the log-probability of each."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM


@dataclass(frozen=True, kw_only=True)
class GeneratedToken:
    """A token and its log-probability (natural) given those before it."""

    token: int
    log_probability: float


class GreedyModel:
    """A causal language model in fp32 on the CPU."""

    def __init__(self, folder: Path, *, threads: int) -> None:
        torch.set_num_threads(threads)
        self._model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    @property
    def longest_tokens(self) -> int:
        """Of prompt and output together."""
        return int(self._model.config.max_position_embeddings)

    @property
    def vocab_size(self) -> int:
        return int(self._model.config.vocab_size)

    @torch.inference_mode()
    def generate(self, prompt: Sequence[int], num_tokens: int) -> Iterator[GeneratedToken]:
        """The likeliest ``num_tokens`` after ``prompt``, the smallest id of equal ones; an end-of-text
        token does not end it."""
        inputs, cache = torch.tensor([list(prompt)]), None
        for _ in range(num_tokens):
            output = self._model(inputs, past_key_values=cache, use_cache=True, logits_to_keep=1)
            cache = output.past_key_values
            log_probabilities = output.logits[0, -1].float().log_softmax(-1)
            token = int(log_probabilities.argmax())
            yield GeneratedToken(token=token, log_probability=float(log_probabilities[token]))
            inputs = torch.tensor([[token]])
