"""DeepSeek V2 to V3.2 and others of their kind (Kimi K2, GLM-5, GLM-4.7-Flash, Mistral 4): latent
attention, experts behind the first layers, shared experts, sparse attention in some."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from meshfit.errors import InputError
from meshfit.workload.blocks.block import Block
from meshfit.workload.blocks.latent import IndexerSpec, LatentAttentionSpec
from meshfit.workload.families.decoder import DecoderSizes, decoder_sizes, divided_head_dim
from meshfit.workload.families.experts import Experts, after_first, feed_forwards
from meshfit.workload.families.family import Flag, Setting, setting
from meshfit.workload.families.keys import (
    MAX_HEADS,
    MAX_LAYERS,
    MAX_TOKENS,
    Config,
    flag,
    layer_kinds,
    optional_whole_number,
    probability,
    shown,
    whole_number,
    with_own_names,
)
from meshfit.workload.families.mtp import with_mtp
from meshfit.workload.model import LayerSpec, MlpSpec, ModelSpec

_INDEXER_KINDS = {"full": "full", "shared": "shared"}


@dataclass(frozen=True, kw_only=True)
class LatentSizes:
    """Defaults of the keys of latent attention."""

    q_lora_rank: int | None = 1536
    kv_lora_rank: int = 512
    qk_nope_head_dim: int = 128
    qk_rope_head_dim: int = 64
    v_head_dim: int | None = 128
    """None: hidden_size / num_attention_heads."""


@dataclass(frozen=True, kw_only=True)
class LatentFamily:
    """A family of decoders with latent attention, as data.

    Attributes:
        experts: None: every layer has the dense MLP.
        dense_layers: default of ``first_k_dense_replace``.
        indexer: default sizes of the indexer of sparse attention; None: attention is dense.
        mlp_bias: biases in the dense MLPs; ``Experts.shared_bias`` says it of shared experts.
        synonyms: other names of keys -> the names read here.
    """

    model_type: str
    defaults: DecoderSizes
    latent: LatentSizes
    experts: Experts | None
    dense_layers: int = 0
    indexer: IndexerSpec | None = None
    mlp_bias: Setting = False
    tie_word_embeddings: bool = False
    synonyms: dict[str, str] = field(default_factory=dict)

    def read(self, name: str, config: Config) -> ModelSpec:
        """The model. Raises ``InputError`` on a key that the family's config class would not take."""
        own = with_own_names(config, self.synonyms)
        sizes = decoder_sizes(own, self.defaults)
        mlp = MlpSpec(
            intermediate_size=sizes.intermediate_size,
            gated=True,
            bias=setting(own, self.mlp_bias),
        )
        blocks: Sequence[Block] = (mlp,) * sizes.num_hidden_layers
        if self.experts is not None:
            blocks = feed_forwards(self.experts, after_first(self.dense_layers))(own, sizes, mlp)
        attentions = self._attentions(own, sizes)
        pairs = list(zip(attentions, blocks, strict=True))
        layer_with = {
            pair: LayerSpec(blocks=(("self_attn", pair[0]), ("mlp", pair[1])))
            for pair in set(pairs)
        }
        model = ModelSpec(
            name=name,
            model_type=self.model_type,
            hidden_size=sizes.hidden_size,
            vocab_size=sizes.vocab_size,
            layers=tuple(layer_with[pair] for pair in pairs),
            norm="rms_norm",
            tie_word_embeddings=flag(own, "tie_word_embeddings", self.tie_word_embeddings),
            max_position_embeddings=sizes.max_position_embeddings,
            dropout=probability(own, "attention_dropout", 0.0),
            config=config,
        )
        return with_mtp(model, own, "num_nextn_predict_layers")

    def _attentions(self, config: Config, sizes: DecoderSizes) -> Sequence[LatentAttentionSpec]:
        full = latent_attention(config, sizes, self.latent, _indexer(config, self.indexer))
        if full.indexer is None:
            return (full,) * sizes.num_hidden_layers
        shared = LatentAttentionSpec(**{**vars(full), "shares_selection": True})
        kinds = _indexer_kinds(config, sizes.num_hidden_layers)
        return tuple(full if kind == "full" else shared for kind in kinds)


def latent_attention(
    config: Config,
    sizes: DecoderSizes,
    defaults: LatentSizes,
    indexer: IndexerSpec | None = None,
) -> LatentAttentionSpec:
    """The latent attention of ``config``.

    Raises:
        InputError: a size cannot be right, or ``qk_head_dim`` is not the sum of its parts.
    """
    heads = sizes.num_attention_heads
    value_dim = optional_whole_number(config, "v_head_dim", defaults.v_head_dim)
    attention = LatentAttentionSpec(
        num_attention_heads=heads,
        q_lora_rank=optional_whole_number(config, "q_lora_rank", defaults.q_lora_rank),
        kv_lora_rank=whole_number(config, "kv_lora_rank", defaults.kv_lora_rank),
        qk_nope_head_dim=whole_number(config, "qk_nope_head_dim", defaults.qk_nope_head_dim),
        qk_rope_head_dim=whole_number(config, "qk_rope_head_dim", defaults.qk_rope_head_dim),
        v_head_dim=value_dim or divided_head_dim(sizes.hidden_size, heads),
        bias=flag(config, "attention_bias", False),
        indexer=indexer,
    )
    stated = optional_whole_number(config, "qk_head_dim")
    if stated is not None and stated != attention.qk_head_dim:
        raise InputError(
            f"qk_head_dim is {stated}, but qk_nope_head_dim {attention.qk_nope_head_dim} +"
            f" qk_rope_head_dim {attention.qk_rope_head_dim} is {attention.qk_head_dim}"
        )
    if indexer is not None and attention.q_lora_rank is None:
        raise InputError("q_lora_rank is null; the indexer of sparse attention reads that latent")
    return attention


def _indexer(config: Config, defaults: IndexerSpec | None) -> IndexerSpec | None:
    if defaults is None:
        return None
    return IndexerSpec(
        num_heads=whole_number(config, "index_n_heads", defaults.num_heads, maximum=MAX_HEADS),
        head_dim=whole_number(config, "index_head_dim", defaults.head_dim),
        top_k=whole_number(config, "index_topk", defaults.top_k, maximum=MAX_TOKENS),
    )


def _indexer_kinds(config: Config, num_hidden_layers: int) -> Sequence[str]:
    """Which layers run an indexer (``full``) and which reuse an earlier one's choice (``shared``).

    ``indexer_types`` lists them; else ``index_topk_pattern`` (``"FSSF"``), else every
    ``index_topk_freq``-th layer after an offset.
    """
    pattern = config.get("index_topk_pattern")
    if pattern is not None:
        letters = {"F": "full", "S": "shared"}
        if (
            not isinstance(pattern, str)
            or set(pattern) - letters.keys()
            or len(pattern) != num_hidden_layers
        ):
            raise InputError(
                f"index_topk_pattern is {shown(pattern)}; expected {num_hidden_layers} letters"
                " F and S, one a layer"
            )
        usual = [letters[letter] for letter in pattern]
    else:
        every = whole_number(config, "index_topk_freq", 1, minimum=0, maximum=MAX_LAYERS) or 1
        offset = whole_number(config, "index_skip_topk_offset", 2, minimum=0, maximum=MAX_LAYERS)
        usual = [
            "full" if max(i - offset + 1, 0) % every == 0 else "shared"
            for i in range(num_hidden_layers)
        ]
    return layer_kinds(config, num_hidden_layers, _INDEXER_KINDS, usual, key="indexer_types")


def _experts(total: int, chosen: int, width: int, shared: int) -> Experts:
    return Experts(
        total=("n_routed_experts", total),
        chosen=("num_experts_per_tok", chosen),
        width=("moe_intermediate_size", width),
        shared_count=("n_shared_experts", shared),
    )


_V3_SIZES = DecoderSizes(
    vocab_size=129280,
    hidden_size=7168,
    intermediate_size=18432,
    num_hidden_layers=61,
    num_attention_heads=128,
    max_position_embeddings=4096,
)
_EXPERT_NAMES = {"num_local_experts": "n_routed_experts", "num_experts": "n_routed_experts"}

DEEPSEEK_V2 = LatentFamily(
    model_type="deepseek_v2",
    defaults=DecoderSizes(
        vocab_size=102400,
        hidden_size=4096,
        intermediate_size=11008,
        num_hidden_layers=32,
        num_attention_heads=32,
        max_position_embeddings=2048,
    ),
    latent=LatentSizes(),
    experts=replace(_experts(64, 0, 1407, 2), shared_bias=Flag(key="mlp_bias")),
    mlp_bias=Flag(key="mlp_bias"),
    synonyms=_EXPERT_NAMES,
)
DEEPSEEK_V3 = LatentFamily(
    model_type="deepseek_v3",
    defaults=_V3_SIZES,
    latent=LatentSizes(),
    experts=_experts(256, 8, 2048, 1),
    dense_layers=3,
    synonyms=_EXPERT_NAMES,
)
DEEPSEEK_V32 = LatentFamily(
    model_type="deepseek_v32",
    defaults=DecoderSizes(**{**vars(_V3_SIZES), "max_position_embeddings": 163840}),
    latent=LatentSizes(),
    experts=_experts(256, 8, 2048, 1),
    dense_layers=3,
    indexer=IndexerSpec(num_heads=64, head_dim=128, top_k=2048),
    synonyms=_EXPERT_NAMES,
)
KIMI_K2 = LatentFamily(
    model_type="kimi_k2",
    defaults=_V3_SIZES,
    latent=LatentSizes(),
    experts=_experts(256, 8, 2048, 1),
    dense_layers=3,
    synonyms=_EXPERT_NAMES,
)
GLM_MOE_DSA = LatentFamily(
    model_type="glm_moe_dsa",
    defaults=DecoderSizes(
        vocab_size=154880,
        hidden_size=6144,
        intermediate_size=12288,
        num_hidden_layers=78,
        num_attention_heads=64,
        max_position_embeddings=202752,
    ),
    latent=LatentSizes(q_lora_rank=2048, qk_nope_head_dim=192, v_head_dim=256),
    experts=_experts(256, 8, 2048, 1),
    dense_layers=3,
    indexer=IndexerSpec(num_heads=32, head_dim=128, top_k=2048),
    synonyms=_EXPERT_NAMES,
)
GLM4_MOE_LITE = LatentFamily(
    model_type="glm4_moe_lite",
    defaults=DecoderSizes(
        vocab_size=154880,
        hidden_size=2048,
        intermediate_size=10240,
        num_hidden_layers=47,
        num_attention_heads=20,
        max_position_embeddings=202752,
    ),
    latent=LatentSizes(q_lora_rank=768, qk_nope_head_dim=192, v_head_dim=256),
    experts=_experts(64, 4, 1536, 1),
    dense_layers=1,
    synonyms={**_EXPERT_NAMES, "head_dim": "qk_rope_head_dim"},
)
MISTRAL4 = LatentFamily(
    model_type="mistral4",
    defaults=DecoderSizes(
        vocab_size=131072,
        hidden_size=4096,
        intermediate_size=12288,
        num_hidden_layers=36,
        num_attention_heads=32,
        max_position_embeddings=1048576,
    ),
    latent=LatentSizes(q_lora_rank=1024, kv_lora_rank=256, qk_nope_head_dim=64),
    experts=_experts(128, 4, 2048, 1),
    synonyms=_EXPERT_NAMES,
)
MINICPM3 = LatentFamily(
    model_type="minicpm3",
    defaults=DecoderSizes(
        vocab_size=73448,
        hidden_size=2560,
        intermediate_size=6400,
        num_hidden_layers=62,
        num_attention_heads=40,
        max_position_embeddings=32768,
    ),
    latent=LatentSizes(
        q_lora_rank=768, kv_lora_rank=256, qk_nope_head_dim=64, qk_rope_head_dim=32, v_head_dim=None
    ),
    experts=None,
    mlp_bias=Flag(key="mlp_bias"),
    tie_word_embeddings=True,
)
YOUTU = LatentFamily(
    model_type="youtu",
    defaults=DecoderSizes(
        vocab_size=128256,
        hidden_size=2048,
        intermediate_size=6144,
        num_hidden_layers=32,
        num_attention_heads=16,
        max_position_embeddings=131072,
    ),
    latent=LatentSizes(),
    experts=None,
    tie_word_embeddings=True,
)
SARVAM_MLA = LatentFamily(
    model_type="sarvam_mla",
    defaults=DecoderSizes(
        vocab_size=262144,
        hidden_size=4096,
        intermediate_size=16384,
        num_hidden_layers=32,
        num_attention_heads=64,
        max_position_embeddings=4096,
    ),
    latent=LatentSizes(q_lora_rank=None),
    experts=_experts(128, 8, 2048, 1),
    dense_layers=1,
    synonyms=_EXPERT_NAMES,
)
