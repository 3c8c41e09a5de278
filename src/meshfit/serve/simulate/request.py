"""A request on its way through a replica."""

from dataclasses import dataclass

SegmentKey = str | int


@dataclass(kw_only=True, slots=True, eq=False)
class Request:
    """What is asked, and what has become of it so far.

    Attributes:
        number: in order of arrival, unique in a simulation.
        arrival_s: when the client sends it; latencies count from here.
        ready_s: when a replica may first see it (after HTTP, tokeniser, transfer).
        decode_steps: steps that its output after the first token takes: ``output_tokens - 1`` unless
            drafts are accepted.
        priority: smaller goes first; inside one priority, first come first served.
        prefix: keys of the leading segments of its prompt, equal where text is equal; each is
            ``segment_tokens`` long.
        is_transferred: its prompt's KV cache comes with it, from another pool.
        generated_tokens: tokens that the client had when it last joined or left those that decode.
        target_tokens: of its context when its prompt (and output before a preemption) is computed.
        computed_tokens: of them, those in the cache; all are reserved.
        first_step: the replica's count of decoding steps before the first one of it.
        tokens_per_step: of output, in one of them; 0 while it does not decode.
        left_s: when it was preempted while it decoded; None from its next token on.
        shared_segments: leading segments whose blocks it shares now.
        reused_tokens: tokens of its prompt that were cached when it was first admitted.
        preemptions: how often it lost its cache to older requests.
        is_cut: whether it was longer than the model's longest context.
        refused: why it can never be served, empty otherwise.
    """

    number: int
    arrival_s: float
    ready_s: float
    prompt_tokens: int
    output_tokens: int
    decode_steps: int
    priority: int = 0
    prefix: tuple[SegmentKey, ...] = ()
    segment_tokens: int = 0
    is_transferred: bool = False
    generated_tokens: int = 0
    target_tokens: int = 0
    computed_tokens: int = 0
    first_step: float = 0.0
    tokens_per_step: float = 0.0
    left_s: float | None = None
    shared_segments: int = 0
    reused_tokens: int = 0
    admitted_s: float | None = None
    first_token_s: float | None = None
    finished_s: float | None = None
    preemptions: int = 0
    is_cut: bool = False
    refused: str = ""

    @property
    def order(self) -> tuple[int, float, int]:
        """Who goes first: by priority, then by arrival."""
        return self.priority, self.ready_s, self.number

    def held_tokens(self, step: float) -> float:
        """Tokens that it holds in the cache after so many steps of its replica, reserved ones
        included."""
        return self.target_tokens + (step - self.first_step) * self.tokens_per_step
