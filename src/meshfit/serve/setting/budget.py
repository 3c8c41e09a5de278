"""What an engine may take of a device and put into a step, as a job says it or by its own defaults."""

from dataclasses import dataclass

from meshfit.cluster.topology import AcceleratorSpec
from meshfit.errors import InputError
from meshfit.mesh.rules import violations
from meshfit.profile import BatchDefaults, EngineProfile, MemoryPolicy, ServingOptions

MOST_OF_DEVICE = 0.95
"""What is never recommended beyond: graphs, kernels and other processes are not all foreseen
(vllm#57475: 0.98 passes the engine's own check and dies when graphs are captured)."""


@dataclass(frozen=True, kw_only=True)
class ServingBudget:
    """Budgets of one attention group's rank.

    Attributes:
        memory_policy, memory_fraction: see ``profile.MemoryPolicy``.
        cache_element_bytes: of one element of the KV cache.
        page_tokens, frees_behind_window, graph_bytes: see ``profile.ServingOptions``.
        step_tokens: token budget of a step.
        max_sequences: requests computed at once.
    """

    memory_policy: MemoryPolicy
    memory_fraction: float
    cache_element_bytes: float
    page_tokens: int
    frees_behind_window: bool
    step_tokens: int
    max_sequences: int
    graph_bytes: int


def serving_budget(
    profile: EngineProfile,
    accelerator: AcceleratorSpec,
    *,
    memory_fraction: float | None = None,
    cache_element_bytes: float = 2.0,
    step_tokens: int | None = None,
    max_sequences: int | None = None,
    has_graphs: bool = True,
) -> ServingBudget:
    """What is given, and the engine's defaults on such a device for the rest.

    Args:
        has_graphs: whether steps are captured as graphs, which take memory.

    Raises:
        InputError: the engine does not serve, or not so many sequences in such a step.
    """
    options = serving_options(profile)
    batch = _batch_defaults(options, accelerator)
    tokens = step_tokens or batch.max_batched_tokens
    sequences = max_sequences or batch.max_sequences
    broken = violations({"step_tokens": tokens, "max_sequences": sequences}, profile)
    if broken and max_sequences is not None:
        raise InputError(
            f"{profile.name}: {broken[0].message}; give max_batched_tokens of {sequences} or more, or "
            f"max_sequences up to {tokens}"
        )
    return ServingBudget(
        memory_policy=options.memory_policy,
        memory_fraction=memory_fraction or options.memory_fraction,
        cache_element_bytes=cache_element_bytes,
        page_tokens=options.page_tokens,
        frees_behind_window=options.frees_behind_window,
        step_tokens=tokens,
        max_sequences=min(sequences, tokens)
        if broken
        else sequences,  # as the engine lowers its own
        graph_bytes=options.graph_bytes if has_graphs else 0,
    )


def _batch_defaults(options: ServingOptions, accelerator: AcceleratorSpec) -> BatchDefaults:
    return next(
        batch
        for batch in options.batches
        if accelerator.memory_bytes >= batch.least_device_bytes
        and not accelerator.name.startswith(batch.not_on)
    )


def serving_options(profile: EngineProfile) -> ServingOptions:
    """Budgets of a serving engine.

    Raises:
        InputError: the engine does not serve.
    """
    if profile.serving is None:
        raise InputError(
            f"engine {profile.name} trains and does not serve; vllm, sglang and tensorrt_llm do"
        )
    return profile.serving
