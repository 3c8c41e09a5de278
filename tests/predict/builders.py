"""Small models, machines and layouts for the tests of tier 1."""

from dataclasses import replace
from typing import Any

from meshfit.cluster.topology import AcceleratorSpec, Level, Topology
from meshfit.engines.native.profile import NATIVE
from meshfit.mesh.candidates import SCHEDULES, Candidates
from meshfit.mesh.spec import LayoutSpec, make_layout
from meshfit.predict.shape.columns import step_columns
from meshfit.predict.shape.group import LayoutGroup
from meshfit.predict.shape.layer_basis import Numerics, cast
from meshfit.predict.shape.schedule import Pipeline
from meshfit.profile import EngineProfile
from meshfit.workload.model import AttentionSpec, LayerSpec, MlpSpec, ModelSpec
from meshfit.workload.training import PRECISIONS, PrecisionSpec, TrainingSpec

FP32 = PRECISIONS["fp32"]
BF16 = PRECISIONS["bf16_mixed"]

WITHOUT_HOST = replace(NATIVE, host_s_per_layer=0.0, tensor_parallel_host_s_per_layer=0.0)
"""Our runner on a host that issues work in no time: what is left is arithmetic."""


def llama(
    *,
    hidden_size: int = 128,
    num_layers: int = 4,
    heads: int = 4,
    kv_heads: int = 2,
    intermediate_size: int = 352,
    vocab_size: int = 512,
    tied: bool = False,
    qk_norm: bool = False,
) -> ModelSpec:
    attention = AttentionSpec(
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=hidden_size // heads,
        qk_norm=qk_norm,
    )
    layer = LayerSpec(
        attention=attention, mlp=MlpSpec(intermediate_size=intermediate_size, gated=True)
    )
    return ModelSpec(
        name="test",
        model_type="llama",
        hidden_size=hidden_size,
        vocab_size=vocab_size,
        layers=(layer,) * num_layers,
        norm="rms_norm",
        tie_word_embeddings=tied,
        max_position_embeddings=8192,
    )


def llama_8b() -> ModelSpec:
    return llama(
        hidden_size=4096,
        num_layers=32,
        heads=32,
        kv_heads=8,
        intermediate_size=14_336,
        vocab_size=128_256,
    )


def training(
    *,
    sequence_length: int = 128,
    global_batch_size: int = 16,
    precision: PrecisionSpec = FP32,
    **keys: Any,
) -> TrainingSpec:
    return TrainingSpec(
        sequence_length=sequence_length,
        global_batch_size=global_batch_size,
        precision=precision,
        **keys,
    )


def cluster(
    *, nodes: int = 1, device_type: Any = "cuda", memory_bytes: int = 85_520_809_984
) -> Topology:
    """8 accelerators a node: 400 GB/s and 2 us inside, 50 GB/s and 10 us between nodes."""
    accelerator = AcceleratorSpec(
        name="test",
        device_type=device_type,
        memory_bytes=memory_bytes,
        peak_flops_per_s={"bf16": 1000e12, "fp32": 60e12},
        matmul_fraction=0.8,
        memory_bytes_per_s=3.2e12,
    )
    node = Level(name="node", size=8, kind="switch", bandwidth_bytes_per_s=400e9, latency_s=2e-6)
    rail = Level(
        name="rail", size=nodes, kind="switch", bandwidth_bytes_per_s=50e9, latency_s=10e-6
    )
    levels = (node,) if nodes == 1 else (node, rail)
    return Topology(accelerator=accelerator, levels=levels, gpus_per_host=8)


def layouts(*keys: dict[str, Any]) -> Candidates:
    return Candidates.from_layouts([make_layout(one) for one in keys])


def pipeline(layout: LayoutSpec, model: ModelSpec) -> Pipeline:
    return Pipeline(
        pp=layout.pp,
        vpp=layout.vpp,
        schedule=layout.schedule,
        stage_layers=layout.layers_of_stages(model.num_hidden_layers),
        model=model,
    )


def group(
    model: ModelSpec,
    spec: TrainingSpec,
    *keys: dict[str, Any],
    profile: EngineProfile = WITHOUT_HOST,
    numerics: Numerics | None = None,
) -> LayoutGroup:
    """Layouts that share a pipeline; numerics default to cast."""
    candidates = layouts(*keys)
    layout = candidates.layout(0)
    assert layout.schedule in SCHEDULES
    return LayoutGroup(
        model=model,
        training=spec,
        profile=profile,
        pipeline=pipeline(layout, model),
        numerics=numerics or cast(spec.precision),
        candidates=candidates,
        columns=step_columns(candidates, spec, profile),
    )
