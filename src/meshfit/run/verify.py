"""Counts the parameters of the model that transformers builds from a config: no weights, no time.

``python -m meshfit.run.verify`` reads a config as JSON on stdin and prints one JSON document:
``class``, ``total``, ``by_part``, ``version``; or ``error`` where transformers cannot build it.
"""

import json
import sys
import warnings
from typing import Any

import torch
import transformers

from meshfit.workload.parts import PARTS, part_of

AUTO_CLASSES = ("AutoModelForCausalLM", "AutoModelForImageTextToText", "AutoModel")
"""Tried in this order: the language model alone, with its towers, whatever else it is."""


def counted(config: dict[str, Any]) -> dict[str, Any]:
    """Parameters of the model by part, shared ones once.

    Raises:
        ValueError: transformers does not know the family.
    """
    model = build(config)
    by_part = dict.fromkeys(PARTS, 0)
    for name, parameter in model.named_parameters():
        by_part[part_of(name)] += parameter.numel()
    return {
        "class": type(model).__name__,
        "total": sum(by_part.values()),
        "by_part": by_part,
        "version": transformers.__version__,
    }


def build(config: dict[str, Any]) -> torch.nn.Module:
    """The model on the meta device, as transformers' first fitting auto class makes it.

    Quantisation is left out: it changes how weights are stored, not how many there are.

    Raises:
        ValueError: transformers does not know the family.
    """
    ignored = ("model_type", "quantization_config")
    sizes = {key: value for key, value in config.items() if key not in ignored}
    built = transformers.AutoConfig.for_model(config.get("model_type", ""), **sizes)
    for name in AUTO_CLASSES:
        auto = getattr(transformers, name)
        if type(built) in auto._model_mapping:
            with torch.device("meta"):
                model = auto.from_config(built)
            model.tie_weights()
            return model
    raise ValueError(f"transformers has no model class for {config.get('model_type')!r}")


def main() -> None:
    """Reads a config from stdin and prints what was counted, or why nothing was."""
    transformers.logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    try:
        document = counted(json.load(sys.stdin))
    except Exception as error:  # whatever a class of transformers does with a config
        document = {
            "error": f"{type(error).__name__}: {error}",
            "version": transformers.__version__,
        }
    json.dump(document, sys.stdout)


if __name__ == "__main__":
    main()
