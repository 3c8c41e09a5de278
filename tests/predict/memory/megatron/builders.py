"""Models and layouts of Megatron-Core's own functional tests, and what they are run on."""

from dataclasses import replace
from typing import Any

from meshfit.cluster.catalogue import accelerator
from meshfit.engines.megatron.profile import MEGATRON
from meshfit.mesh.candidates import Candidates
from meshfit.mesh.spec import make_layout
from meshfit.predict.shape.columns import step_columns
from meshfit.predict.shape.group import LayoutGroup
from meshfit.predict.shape.layer_basis import cast
from meshfit.predict.shape.schedule import Pipeline
from meshfit.profile import MegatronOptions
from meshfit.workload.model import AttentionSpec, LayerSpec, MlpSpec, ModelSpec
from meshfit.workload.training import PRECISIONS, RuntimeSpec, TrainingSpec

MIB = 2**20


def gpt(
    *,
    hidden_size: int = 512,
    num_layers: int = 12,
    heads: int = 8,
    kv_heads: int | None = None,
    sequence_length: int = 1024,
    vocab_size: int = 50_257,
    tied: bool = True,
    dropout: float = 0.1,
    **keys: Any,
) -> ModelSpec:
    """What ``pretrain_gpt.py`` builds by default: biases, LayerNorm, GELU, learned positions."""
    attention = AttentionSpec(
        num_attention_heads=heads,
        num_key_value_heads=kv_heads or heads,
        head_dim=hidden_size // heads,
        qkv_bias=True,
        output_bias=True,
    )
    mlp = MlpSpec(intermediate_size=4 * hidden_size, gated=False, bias=True)
    layer = keys.pop("layer", None) or LayerSpec(attention=attention, mlp=mlp)
    return ModelSpec(
        name="gpt",
        model_type="gpt",
        hidden_size=hidden_size,
        vocab_size=vocab_size,
        layers=(layer,) * num_layers,
        norm=keys.pop("norm", "layer_norm"),
        tie_word_embeddings=tied,
        max_position_embeddings=sequence_length,
        learned_positions=keys.pop("learned_positions", sequence_length),
        dropout=dropout,
        **keys,
    )


def group(
    model: ModelSpec,
    *layouts: dict[str, Any],
    sequence_length: int = 1024,
    global_batch_size: int = 32,
    precision: str = "bf16_mixed",
    gpu: str = "A100-SXM4-80",
    runtime: RuntimeSpec | None = None,
    **options: Any,
) -> LayoutGroup:
    """Layouts that share a pipeline, as Megatron-Core runs them in deterministic mode."""
    profile = replace(MEGATRON, megatron=MegatronOptions(**({"deterministic": True} | options)))
    training = TrainingSpec(
        sequence_length=sequence_length,
        global_batch_size=global_batch_size,
        precision=PRECISIONS[precision],  # type: ignore[index]
        runtime=runtime or RuntimeSpec(fused_gradient_accumulation=False),
    )
    made = [
        make_layout({"micro_batch_size": 4, "sp": False} | keys, zero_stage=1) for keys in layouts
    ]
    candidates = Candidates.from_layouts(made)
    return LayoutGroup(
        model=model,
        training=training,
        profile=profile,
        pipeline=Pipeline(
            pp=made[0].pp,
            vpp=made[0].vpp,
            schedule=made[0].schedule,
            stage_layers=made[0].layers_of_stages(model.num_hidden_layers),
            model=model,
        ),
        numerics=cast(training.precision),
        candidates=candidates,
        columns=step_columns(candidates, training, profile),
        accelerator=accelerator(gpu),
    )
