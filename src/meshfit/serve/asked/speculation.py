"""Speculative decoding: how many steps an output takes when some drafts are accepted."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class SpeculationSpec:
    """Drafts of ``draft_tokens``, of which each is accepted with probability ``acceptance`` if the
    one before it was. Time of the draft model is left out."""

    draft_tokens: int
    acceptance: float

    @property
    def tokens_per_step(self) -> float:
        """Expected tokens of one step: ``(1 - a^(k+1)) / (1 - a)`` (2211.17192, equation 1)."""
        a, k = self.acceptance, self.draft_tokens
        return k + 1.0 if a == 1 else (1 - a ** (k + 1)) / (1 - a)

    def steps(self, tokens: int, generator: np.random.Generator) -> int:
        """Steps until ``tokens`` are there, drawn at random."""
        done, steps = 0, 0
        while done < tokens:
            likely = int((tokens - done) / self.tokens_per_step) + 1
            after = done + np.cumsum(self._tokens_of_steps(likely, generator))
            if after[-1] >= tokens:
                return steps + int(np.searchsorted(after, tokens)) + 1
            done, steps = int(after[-1]), steps + likely
        return steps

    def _tokens_of_steps(self, steps: int, generator: np.random.Generator) -> NDArray[np.int64]:
        """Tokens of each step: those accepted before the first refusal, and one more."""
        accepted = generator.random((steps, self.draft_tokens)) < self.acceptance
        tokens: NDArray[np.int64] = 1 + np.logical_and.accumulate(accepted, axis=1).sum(axis=1)
        return tokens
