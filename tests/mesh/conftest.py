"""Small models, workloads and clusters for the tests of this package."""

from collections.abc import Callable

import pytest

from meshfit.cluster.topology import AcceleratorSpec, Level, Topology
from meshfit.workload.model import AttentionSpec, LayerSpec, MlpSpec, ModelSpec
from meshfit.workload.training import PRECISIONS, TrainingSpec


@pytest.fixture(scope="session")
def make_model() -> Callable[..., ModelSpec]:
    def make(
        *,
        layers: int = 4,
        heads: int = 8,
        key_value_heads: int = 4,
        vocab_size: int = 512,
        intermediate_size: int = 256,
        model_type: str = "llama",
        tied: bool = False,
    ) -> ModelSpec:
        layer = LayerSpec(
            attention=AttentionSpec(
                num_attention_heads=heads, num_key_value_heads=key_value_heads, head_dim=16
            ),
            mlp=MlpSpec(intermediate_size=intermediate_size, gated=True),
        )
        return ModelSpec(
            name="small",
            model_type=model_type,
            hidden_size=16 * heads,
            vocab_size=vocab_size,
            layers=(layer,) * layers,
            norm="rms_norm",
            tie_word_embeddings=tied,
            max_position_embeddings=4096,
        )

    return make


@pytest.fixture(scope="session")
def make_training() -> Callable[..., TrainingSpec]:
    def make(*, sequence_length: int = 128, global_batch_size: int = 8) -> TrainingSpec:
        return TrainingSpec(
            sequence_length=sequence_length,
            global_batch_size=global_batch_size,
            precision=PRECISIONS["bf16_mixed"],
        )

    return make


@pytest.fixture(scope="session")
def make_topology() -> Callable[..., Topology]:
    def make(*, per_host: int, hosts: int = 1) -> Topology:
        accelerator = AcceleratorSpec(
            name="test",
            device_type="cuda",
            memory_bytes=80 * 2**30,
            peak_flops_per_s={"bf16": 1e15},
            matmul_fraction=0.75,
            memory_bytes_per_s=3e12,
        )
        node = Level(
            name="node", size=per_host, kind="switch", bandwidth_bytes_per_s=4e11, latency_s=3e-6
        )
        network = Level(
            name="network", size=hosts, kind="switch", bandwidth_bytes_per_s=5e10, latency_s=1e-5
        )
        levels = (node, network) if hosts > 1 else (node,)
        return Topology(accelerator=accelerator, levels=levels, gpus_per_host=per_host)

    return make
