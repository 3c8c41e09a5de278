"""Model families: one module turns the configs of one ``model_type`` into a ``ModelSpec``.

To add a family:

1. Write ``families/NAME.py``. A decoder with softmax attention is a ``DecoderFamily``: its defaults
   and what it has of biases, norms, windows and experts, as data. Anything else is a function
   ``read(name, config) -> ModelSpec`` over the blocks of ``workload.blocks``. Every key is read
   through ``families.keys``, with the defaults of the family's config class in transformers.
2. Add it to ``_TABLES`` or ``FAMILIES`` below.
3. Add a tiny config to ``tests/workload/families/test_against_transformers.py``; it compares
   defaults, and the parameters of a model on the meta device, with transformers.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from meshfit.errors import InputError, nearest_name
from meshfit.workload.counts import total_parameters
from meshfit.workload.families import (
    bailing,
    bitnet,
    cohere,
    deepseek,
    deepseek_v4,
    ernie,
    falcon,
    gemma,
    gemma3n,
    gemma4,
    glm_moe,
    glm_vision,
    gpt2,
    gpt_bigcode,
    gpt_neo,
    gptj,
    hunyuan,
    hybrid,
    hyperclovax,
    kimi_linear,
    laguna,
    lfm2,
    llama,
    llama4,
    mamba,
    mimo,
    minimax,
    mistral,
    mistral3,
    mpt,
    nemotron,
    nemotron_h,
    olmo_hybrid,
    opt,
    qwen2,
    qwen2_vision,
    qwen3,
    qwen_linear,
    qwen_vision,
    recurrent_gemma,
    stablelm,
    t5,
)
from meshfit.workload.families import bloom as bloom_family
from meshfit.workload.families import dbrx as dbrx_family
from meshfit.workload.families.afmoe import AFMOE
from meshfit.workload.families.apertus import APERTUS
from meshfit.workload.families.arcee import ARCEE
from meshfit.workload.families.aria import ARIA_TEXT
from meshfit.workload.families.cohere import COHERE, COHERE2
from meshfit.workload.families.cwm import CWM
from meshfit.workload.families.exaone import EXAONE4, EXAONE_MOE
from meshfit.workload.families.family import DecoderFamily, dense
from meshfit.workload.families.glm import GLM, GLM4
from meshfit.workload.families.gpt_neox import GPT_NEOX
from meshfit.workload.families.gpt_oss import GPT_OSS
from meshfit.workload.families.granite import (
    GRANITE,
    GRANITE_MOE,
    GRANITE_MOE_SHARED,
    GRANITE_MOE_SWA,
    GRANITE_SWA,
)
from meshfit.workload.families.helium import HELIUM
from meshfit.workload.families.jais2 import JAIS2
from meshfit.workload.families.keys import flag, shown
from meshfit.workload.families.llama_kin import EXAONE, INTERNLM3, IQUEST_CODER
from meshfit.workload.families.mellum import KOLIBRI, MELLUM
from meshfit.workload.families.ministral import MINISTRAL, MINISTRAL3
from meshfit.workload.families.mixtral import MIXTRAL
from meshfit.workload.families.nanochat import NANOCHAT
from meshfit.workload.families.nested import language_configs, with_uncounted_towers
from meshfit.workload.families.olmo import FLEX_OLMO, OLMO, OLMO2, OLMO3, OLMOE
from meshfit.workload.families.persimmon import PERSIMMON
from meshfit.workload.families.phi import PHI, PHI3, PHI_MOE
from meshfit.workload.families.qwen_moe import QWEN2_MOE, QWEN3_MOE
from meshfit.workload.families.seed_oss import SEED_OSS
from meshfit.workload.families.smollm3 import SMOLLM3
from meshfit.workload.families.starcoder2 import STARCODER2
from meshfit.workload.families.towers import WRAPPERS
from meshfit.workload.model import ModelSpec

Reader = Callable[[str, Mapping[str, Any]], ModelSpec]

_TABLES = (
    AFMOE, APERTUS, ARCEE, ARIA_TEXT, COHERE, COHERE2, CWM, deepseek.DEEPSEEK_V2,
    deepseek.DEEPSEEK_V3, deepseek.DEEPSEEK_V32, deepseek.GLM4_MOE_LITE, deepseek.GLM_MOE_DSA,
    deepseek.KIMI_K2, deepseek.MINICPM3, deepseek.MISTRAL4, deepseek.SARVAM_MLA, deepseek.YOUTU,
    ernie.ERNIE4_5, EXAONE, EXAONE4, EXAONE_MOE, FLEX_OLMO, gemma.GEMMA, gemma.GEMMA2,
    gemma.GEMMA3_TEXT, gemma.VAULTGEMMA, GLM, GLM4, glm_moe.DOTS1, glm_moe.SARVAM,
    glm_moe.SOLAR_OPEN, glm_vision.MOE_TEXT, glm_vision.TEXT, GPT_NEOX, GPT_OSS, GRANITE,
    GRANITE_MOE, GRANITE_MOE_SHARED, GRANITE_MOE_SWA, GRANITE_SWA, HELIUM, hunyuan.DENSE,
    hunyuan.MOE, hunyuan.V3, INTERNLM3, IQUEST_CODER, JAIS2, KOLIBRI, MELLUM, minimax.M2,
    MINISTRAL, MINISTRAL3, MIXTRAL, NANOCHAT, OLMO, OLMO2, OLMO3, OLMOE, PERSIMMON, PHI, PHI3,
    PHI_MOE, QWEN2_MOE, qwen2_vision.OMNI_TEXT, qwen2_vision.TEXT_2, qwen2_vision.TEXT_2_5,
    QWEN3_MOE, SEED_OSS, SMOLLM3, STARCODER2, t5.MT5, t5.T5, t5.UMT5,
)  # fmt: skip
"""Families that are data and nothing more."""

FAMILIES: Mapping[str, Reader] = {
    **{family.model_type: family.read for family in _TABLES},
    "bailing_hybrid": bailing.read,
    "bamba": hybrid.read_bamba,
    "bitnet": bitnet.read,
    "bloom": bloom_family.read,
    "codegen": gptj.read,
    "cohere2_moe": cohere.read_moe,
    "dbrx": dbrx_family.read,
    "deepseek_v4": deepseek_v4.read,
    "ernie4_5_moe": ernie.read_moe,
    "falcon": falcon.read,
    "falcon_h1": hybrid.read_falcon_h1,
    "falcon_mamba": mamba.read_falcon,
    "gemma3": gemma.read_gemma3,
    "gemma3n_text": gemma3n.read_text,
    "gemma4": gemma4.read,
    "gemma4_text": gemma4.read_text,
    "glm4_moe": glm_moe.read_glm4_moe,
    "gpt-sw3": gpt2.read,
    "gpt2": gpt2.read,
    "gpt_bigcode": gpt_bigcode.read,
    "gpt_neo": gpt_neo.read,
    "gptj": gptj.read,
    "granitemoehybrid": hybrid.read_granite,
    "hyperclovax": hyperclovax.read,
    "jamba": hybrid.read_jamba,
    "kimi_linear": kimi_linear.read,
    "laguna": laguna.read,
    "lfm2": lfm2.read,
    "lfm2_moe": lfm2.read_moe,
    "llama": llama.read,
    "llama4": llama4.read,
    "llama4_text": llama4.read_text,
    "mamba": mamba.read,
    "mamba2": mamba.read_2,
    "mimo": mimo.read,
    "mimo_v2_flash": mimo.read_v2_flash,
    "minimax": minimax.read_01,
    "minimax_m3": minimax.read_m3,
    "minimax_m3_vl_text": minimax.read_m3,
    "mistral": mistral.read,
    "mistral3": mistral3.read,
    "mpt": mpt.read,
    "nemotron": nemotron.read,
    "nemotron_h": nemotron_h.read,
    "olmo_hybrid": olmo_hybrid.read,
    "opt": opt.read,
    "qwen2": qwen2.read,
    "qwen2_5_vl": qwen2_vision.read_2_5,
    "qwen2_vl": qwen2_vision.read_2,
    "qwen3": qwen3.read,
    "qwen3_5": qwen_linear.read_dense,
    "qwen3_5_moe": qwen_linear.read_moe,
    "qwen3_5_moe_text": qwen_linear.read_moe_text,
    "qwen3_5_text": qwen_linear.read_dense_text,
    "qwen3_next": qwen_linear.read_next,
    "qwen3_vl": qwen_vision.read,
    "qwen3_vl_moe": qwen_vision.read_moe,
    "qwen3_vl_moe_text": qwen_vision.read_moe_text,
    "qwen3_vl_text": qwen_vision.read_text,
    "recurrent_gemma": recurrent_gemma.read,
    "stablelm": stablelm.read,
}
"""``model_type`` -> reader of its configs."""

EXPERT_KEYS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")

EXPERT_FREE = frozenset(
    (
        *(
            f.model_type
            for f in _TABLES
            if isinstance(f, DecoderFamily) and f.feed_forwards is dense
        ),
        *(
            "bloom",
            "falcon",
            "gpt2",
            "gpt_bigcode",
            "gptj",
            "helium",
            "llama",
            "mamba",
            "mamba2",
            "mimo",
        ),
        *("mistral", "mpt", "nemotron", "opt", "qwen2", "qwen3", "t5"),
    )
)
"""Families without experts; a config of theirs that states some contradicts itself."""

PER_LAYER_SIZES = frozenset(("gemma4_text",))
"""Families that read ``per_layer_config``."""

_MOST_KEYS = 20

MAX_PARAMETERS = 2**58
"""Within this, bytes of training state fit 64 bits."""


def read_family(name: str, config: Mapping[str, Any]) -> ModelSpec:
    """The model that ``config`` describes; ``name`` is what the person called it.

    A config of an unknown family that holds the config of a known language model (``text_config``,
    ``thinker_config.text_config``, ...) gives that model; its towers are named, but not counted.

    Raises:
        InputError: the family is not known, or a key of the config cannot be right.
    """
    try:
        model = _read(name, config)
        _check_size(model)
    except InputError as error:
        raise InputError(f"model {name}: {error}") from None
    return model


def _read(name: str, config: Mapping[str, Any]) -> ModelSpec:
    model_type = config.get("model_type")
    if isinstance(model_type, str) and model_type in FAMILIES:
        _check_overrides(config, model_type)
        for _, inner in language_configs(config):
            _check_overrides(inner, inner["model_type"])
        return FAMILIES[model_type](name, config)
    for path, inner in language_configs(config):
        if inner["model_type"] in FAMILIES:
            _check_overrides(inner, inner["model_type"])
            try:
                model = FAMILIES[inner["model_type"]](name, inner)
            except InputError as error:
                raise InputError(f"{path}: {error}") from None
            outer = model_type if isinstance(model_type, str) else inner["model_type"]
            return _wrapped(model, config, outer)
    raise InputError(_unknown(config))


def _wrapped(model: ModelSpec, config: Mapping[str, Any], model_type: str) -> ModelSpec:
    """``model`` as the language model of ``config``, with its tower where that can be read.

    What a wrapper that is not known says of tied embeddings goes before what the language model
    says, as in most of transformers' classes.
    """
    wrapper, inner = WRAPPERS.get(model_type), model.tie_word_embeddings
    if wrapper is None:
        tied = flag(config, "tie_word_embeddings", inner)
        model = replace(model, tie_word_embeddings=tied)
        return with_uncounted_towers(model, config, model_type)
    return replace(
        model,
        model_type=model_type,
        tie_word_embeddings=wrapper.ties(config, inner),
        towers=(wrapper.tower(config, model.hidden_size),),
        config=config,
    )


def _unknown(config: Mapping[str, Any]) -> str:
    """What could not be read, the nearest family, and where a known one was looked for."""
    inner = [
        f"{path}.model_type {shown(nested['model_type'])}"
        for path, nested in language_configs(config)
    ]
    model_type = config.get("model_type")
    if isinstance(model_type, str):
        nearest = nearest_name(model_type, FAMILIES)
        known = f"nearest: {nearest}" if nearest else f"known: {', '.join(sorted(FAMILIES))}"
        inside = f", nor is {', '.join(inner)}" if inner else ""
        return f"model_type {shown(model_type)} is not known{inside}; {known}"
    found = "missing" if "model_type" not in config else shown(model_type)
    keys = ", ".join(sorted(str(key)[:40] for key in config)[:_MOST_KEYS]) or "none"
    inside = f" Inside: {', '.join(inner)}." if inner else ""
    return (
        f"model_type is {found}, and no config inside names a known one. Which key holds the"
        f" language model? Keys seen: {keys}.{inside}"
    )


def _check_overrides(config: Mapping[str, Any], model_type: str) -> None:
    """Refuses keys that change the architecture, but that the family does not read."""
    if config.get("per_layer_config") and model_type not in PER_LAYER_SIZES:
        raise InputError(
            f"per_layer_config gives layers sizes of their own, which {model_type} is not read with"
        )
    if model_type not in EXPERT_FREE:
        return
    for key in EXPERT_KEYS:
        number = config.get(key)
        if isinstance(number, int) and not isinstance(number, bool) and number > 1:
            raise InputError(f"{key} is {number}, but {model_type} has no experts")


def _check_size(model: ModelSpec) -> None:
    total = total_parameters(model)
    if total > MAX_PARAMETERS:
        raise InputError(
            f"its sizes make {total:.1e} parameters; more than {MAX_PARAMETERS:.1e} is a slip"
        )
