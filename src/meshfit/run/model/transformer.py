"""Hugging Face causal language models, built from a raw ``config.json`` and cut into stages.

Legend of shape suffixes: B micro-batch, S sequence, H hidden, V vocabulary.
"""

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from meshfit.errors import InputError
from meshfit.run.model.packed import Packing
from meshfit.run.model.positions import positions_in_documents
from meshfit.workload.families import read_family

if TYPE_CHECKING:
    from meshfit.run.context.attention import ContextParallel


@dataclass(frozen=True, kw_only=True)
class Family:
    """Where one Hugging Face family keeps the parts that a stage has or has not.

    Names are relative to the base model (``model.base_model``).
    """

    class_name: str
    embeddings: tuple[str, ...]
    layers: str
    final_norm: str


_LLAMA_LIKE: dict[str, Any] = {
    "embeddings": ("embed_tokens",),
    "layers": "layers",
    "final_norm": "norm",
}

FAMILIES: dict[str, Family] = {
    "llama": Family(class_name="LlamaForCausalLM", **_LLAMA_LIKE),
    "mistral": Family(class_name="MistralForCausalLM", **_LLAMA_LIKE),
    "qwen2": Family(class_name="Qwen2ForCausalLM", **_LLAMA_LIKE),
    "qwen3": Family(class_name="Qwen3ForCausalLM", **_LLAMA_LIKE),
    "gpt2": Family(
        class_name="GPT2LMHeadModel", embeddings=("wte", "wpe"), layers="h", final_norm="ln_f"
    ),
    "mixtral": Family(class_name="MixtralForCausalLM", **_LLAMA_LIKE),
    "qwen3_moe": Family(class_name="Qwen3MoeForCausalLM", **_LLAMA_LIKE),
    "deepseek_v3": Family(class_name="DeepseekV3ForCausalLM", **_LLAMA_LIKE),
    "phi3": Family(class_name="Phi3ForCausalLM", **_LLAMA_LIKE),
}
"""Hugging Face ``model_type`` -> the family. These can be run."""


def family_of(config: Mapping[str, Any]) -> Family:
    """The family of a raw Hugging Face config.

    Raises:
        InputError: this ``model_type`` cannot be run.
    """
    model_type = config.get("model_type")
    if model_type not in FAMILIES:
        raise InputError(
            f"model_type {model_type!r} cannot be run; the runner knows {', '.join(FAMILIES)}"
        )
    return FAMILIES[model_type]


def is_mixture(config: Mapping[str, Any]) -> bool:
    """Whether a layer of a raw Hugging Face config has experts: a family that can have them need not.

    Raises:
        InputError: this ``model_type`` cannot be run.
    """
    family_of(config)
    return read_family(config["model_type"], config).moe is not None


def head_dim_of(config: Any) -> int:
    """Columns of one attention head of a Hugging Face config, which need not say so."""
    head_dim = getattr(config, "head_dim", None)
    return head_dim or config.hidden_size // config.num_attention_heads


def import_model_class(config: Mapping[str, Any]) -> type[nn.Module]:
    """Hugging Face's class for a raw config.

    From its own module: the Auto classes would import every tokenizer and processor they know.

    Raises:
        InputError: the family cannot be run.
    """
    family, model_type = family_of(config), config["model_type"]
    module = importlib.import_module(f"transformers.models.{model_type}.modeling_{model_type}")
    return getattr(module, family.class_name)


@contextmanager
def parameters_on_meta() -> Iterator[None]:
    """Inside, every parameter that a module registers becomes a meta tensor; buffers stay real.

    A rotary embedding's frequencies are buffers that no weights file holds, so they must be
    computed; parameters are only shapes until each rank has loaded its own shards.
    """
    register_parameter = nn.Module.register_parameter

    def register_on_meta(module: nn.Module, name: str, param: nn.Parameter | None) -> None:
        if param is not None and not param.is_meta:  # a tied parameter stays the same object
            param = nn.Parameter(param.to("meta"), requires_grad=param.requires_grad)
        register_parameter(module, name, param)

    nn.Module.register_parameter = register_on_meta
    try:
        yield
    finally:
        nn.Module.register_parameter = register_parameter


def build_causal_lm(config: Mapping[str, Any]) -> tuple[nn.Module, dict[str, float]]:
    """The model of a raw config in fp32 with meta parameters, and the dropouts that were set to 0.

    Dropout is off because parity with one process needs it: ranks would draw different masks.

    Raises:
        InputError: the family cannot be run, or transformers refuses the config.
    """
    from huggingface_hub.errors import StrictDataclassError  # noqa: PLC0415

    model_class = import_model_class(config)
    try:
        hf_config = model_class.config_class.from_dict(dict(config))
        hf_config.use_cache = False
        disabled = _disable_dropout(hf_config)
        with parameters_on_meta():
            model = model_class._from_config(
                hf_config, attn_implementation="sdpa", dtype=torch.float32
            )
    except (ValueError, TypeError, KeyError, StrictDataclassError) as error:
        raise InputError(f"transformers cannot build {model_class.__name__}: {error}") from error
    return model.train(), disabled


def _disable_dropout(hf_config: Any) -> dict[str, float]:
    """Set every dropout probability of the config to 0; what they were."""
    disabled = {
        name: value
        for name, value in hf_config.to_dict().items()
        if ("drop" in name) and isinstance(value, float) and value > 0
    }
    for name in disabled:
        setattr(hf_config, name, 0.0)
    return disabled


class PassThrough(nn.Module):
    """Stands where a layer of another stage was, so that the others keep index and name."""

    def forward(self, hidden_BSH: Tensor, *_args: object, **_kwargs: object) -> Tensor:
        return hidden_BSH


class NoPositions(nn.Module):
    """Stands where learned positions were, on a stage that gets hidden states with them in it."""

    def forward(self, positions: Tensor) -> Tensor:
        return torch.zeros((), device=positions.device)


class Stage(nn.Module):
    """Consecutive layers of a causal language model: the whole of it, or one pipeline stage.

    Takes token ids (first stage) or hidden states; gives logits (last stage) or hidden states.
    ``model`` keeps Hugging Face's own module tree, hence parameter names.

    Attributes:
        autocast_dtype: run the forward under autocast with this dtype; None: as the parameters are.
        wrap_input: makes the hidden states that arrive from another stage what the first layer
            takes (tensor parallelism sets it when stages exchange sequence shards);
            ``unwrap_output`` makes the base model's what the next stage is sent.
        context_parallel: how this rank's part of the sequence meets the others; None: it is whole.
        end_token: the token that ends a document, of several packed into a sequence; None: no such.
        packings: of parameters that pack several matrices which tensor parallelism cuts, by name.
    """

    def __init__(
        self, model: nn.Module, family: Family, *, layers: range, autocast_dtype: torch.dtype | None
    ) -> None:
        super().__init__()
        base = model.base_model
        num_layers = len(getattr(base, family.layers))
        self.model = model
        self.family = family
        self.layer_range = layers
        self.is_first = layers.start == 0
        self.is_last = layers.stop == num_layers
        self.autocast_dtype = autocast_dtype
        self.wrap_input = lambda hidden_BSH: hidden_BSH
        self.context_parallel: ContextParallel | None = None
        self.unwrap_output = lambda hidden_BSH: hidden_BSH
        self.end_token: int | None = None
        self.packings: dict[str, Packing] = {}
        self._drop_other_layers(num_layers)

    def _drop_other_layers(self, num_layers: int) -> None:
        layers = getattr(self.base, self.family.layers)
        for index in range(num_layers):
            if index not in self.layer_range:
                layers[index] = PassThrough()
        if not self.is_first:
            tokens, *positions = self.family.embeddings
            setattr(self.base, tokens, None)
            for name in positions:
                setattr(self.base, name, NoPositions())
        if not self.is_last:
            setattr(self.base, self.family.final_norm, PassThrough())
            self.model.lm_head = None

    @property
    def base(self) -> nn.Module:
        """The model without its head."""
        return self.model.base_model

    @property
    def layers(self) -> list[nn.Module]:
        """The layers that this stage holds, in order."""
        layers = getattr(self.base, self.family.layers)
        return [layers[index] for index in self.layer_range]

    @property
    def embedding(self) -> Any:
        """The token embedding on the first stage, None on others."""
        return getattr(self.base, self.family.embeddings[0])

    @property
    def final_norm(self) -> nn.Module | None:
        """The norm before the head, on the last stage."""
        return getattr(self.base, self.family.final_norm) if self.is_last else None

    @property
    def head(self) -> Any:
        """The language-model head on the last stage, None on others."""
        return self.model.lm_head

    @property
    def has_tied_head(self) -> bool:
        """Whether head and embedding are one parameter here."""
        return self.is_first and self.is_last and bool(self.model.config.tie_word_embeddings)

    @property
    def tied_copy(self) -> nn.Parameter | None:
        """The head's weight where it is tied to an embedding that another stage holds."""
        is_copy = self.is_last and not self.is_first and self.model.config.tie_word_embeddings
        return self.head.weight if is_copy else None

    def tie_head(self) -> None:
        """Make the head's weight the embedding's again, after something replaced both."""
        if self.has_tied_head:
            self.head.weight = self.embedding.weight

    def parameters_by_name(self) -> dict[str, nn.Parameter]:
        """Hugging Face's parameter name -> the parameter; a tied one once, by its first name."""
        return dict(self.model.named_parameters())

    def forward(self, inputs: Tensor) -> Tensor:
        with torch.autocast(
            inputs.device.type, dtype=self.autocast_dtype, enabled=self.autocast_dtype is not None
        ):
            return self._forward(inputs)

    def _position_arguments(self, inputs: Tensor) -> dict[str, Any]:
        """What the base model has to be told of positions: nothing where a rank has whole sequences
        of one document each."""
        if self.context_parallel is not None:
            return self.context_parallel.arguments(inputs, self.end_token)
        if self.end_token is not None:
            return {"position_ids": positions_in_documents(inputs, self.end_token)}
        return {}

    def _forward(self, inputs: Tensor) -> Tensor:
        inputs = inputs if self.is_first else self.wrap_input(inputs)
        name = "input_ids" if self.is_first else "inputs_embeds"
        output = self.base(**{name: inputs}, use_cache=False, **self._position_arguments(inputs))
        hidden_BSH = output.last_hidden_state
        return self.head(hidden_BSH) if self.is_last else self.unwrap_output(hidden_BSH)
