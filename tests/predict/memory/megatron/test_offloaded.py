"""Activations that wait on the host (``--fine-grained-activation-offloading``), by hand."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from meshfit.predict.memory.megatron.memory import rank_memory
from meshfit.predict.memory.megatron.offloaded import moved_in_micro_batch
from meshfit.predict.memory.megatron.rank import MegatronRank
from meshfit.workload.model import LayerSpec, MlpSpec, ModelSpec, MoeSpec

from .builders import gpt, group

MIB = 2**20
HIDDEN_STATES = 4 * 1024 * 512 * 2
"""Bytes of one micro-batch of 4 sequences, in 16 bits."""
OF_ATTENTION = 7 * HIDDEN_STATES
"""Input and output of the norm, q, k and v, FlashAttention's output and the projection's input."""


def host_bytes(*layouts: dict[str, Any], model: ModelSpec | None = None) -> np.ndarray:
    of = group(model or gpt(), *({"offload": "activations"} | keys for keys in layouts))
    host = rank_memory(of.pipeline.ranks[0], of).host
    assert host is not None
    return host


def test_attention_of_all_layers_but_two_waits_on_the_host() -> None:
    assert host_bytes({"dp_replicate": 8}) == pytest.approx((12 - 2) * OF_ATTENTION)


def test_what_waits_there_is_not_on_the_device() -> None:
    of = group(gpt(), {"dp_replicate": 8}, {"dp_replicate": 8, "offload": "activations"})
    found = rank_memory(of.pipeline.ranks[0], of)
    here, less = found.categories["activations"]
    assert found.host is not None
    assert here - less == found.host[1] > found.host[0] == 0


def test_every_micro_batch_in_flight_waits() -> None:
    assert host_bytes({"pp": 4, "dp_replicate": 2})[0] == (4 * 3 - 2) * OF_ATTENTION


def test_layers_that_are_recomputed_as_a_whole_move_nothing() -> None:
    full = {"recompute": "full", "recompute_layers": 1}
    block = {"recompute": "block", "recompute_layers": 4}
    keys = {"dp_replicate": 8}
    assert host_bytes(keys | full, keys | block).tolist() == [0, (8 - 2) * OF_ATTENTION]


def test_what_recomputation_makes_again_is_not_moved() -> None:
    kept = OF_ATTENTION - HIDDEN_STATES  # without FlashAttention's own output
    assert host_bytes({"dp_replicate": 8, "recompute": "selective"})[0] == (12 - 2) * kept


def test_tensors_below_a_mebi_of_elements_stay() -> None:
    """A quarter of 2 Mi elements is moved no more where tensor parallelism cuts; norms are whole."""
    cut = host_bytes({"tp": 4, "dp_replicate": 2})[0]
    assert cut == (12 - 2) * 2 * HIDDEN_STATES


def test_of_experts_inputs_are_moved_and_of_dense_mlps_nothing() -> None:
    moe = MoeSpec(
        num_experts=8, experts_per_token=2, expert=MlpSpec(intermediate_size=512, gated=True)
    )
    attention = gpt().layers[0].attention
    assert attention is not None
    model = replace(gpt(), layers=(LayerSpec(blocks=(("attention", attention), ("mlp", moe))),) * 4)
    of = group(model, {"dp_replicate": 8, "offload": "activations"})
    rank = MegatronRank(shape=of.pipeline.ranks[0], group=of)
    of_experts = HIDDEN_STATES + 2 * HIDDEN_STATES + 2 * 2 * HIDDEN_STATES
    assert moved_in_micro_batch(rank)[0] == 4 * (OF_ATTENTION + of_experts)
