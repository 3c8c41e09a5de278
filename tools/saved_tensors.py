"""What autograd keeps of one forward of a small Hugging Face model, tensor by tensor.

    python tools/saved_tensors.py CONFIG.json [--numerics bf16|fp32|autocast] [--attention sdpa|eager]

Prints bytes per token, shape, type and the line of transformers that keeps it, then the total
without parameters and buffers. Expected figures of ``tests/predict/memory/blocks`` come from here.
"""

import argparse
import json
import traceback
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM

TOKENS = 128


def main() -> None:
    arguments = _arguments()
    raw = json.loads(arguments.config.read_text())
    config = AutoConfig.for_model(raw.pop("model_type"), **raw)
    config.use_cache = False
    dtype = torch.bfloat16 if arguments.numerics == "bf16" else torch.float32
    model = AutoModelForCausalLM.from_config(config, attn_implementation=arguments.attention)
    kept = _saved(model.to(dtype).train(), autocast=arguments.numerics == "autocast")
    for size, shape, kind, line in kept:
        print(f"{size / TOKENS:10.2f}  {shape!s:24} {kind:10} {line}")
    print(f"{sum(size for size, *_ in kept) / TOKENS:10.2f}  bytes per token")


def _saved(
    model: torch.nn.Module, *, autocast: bool
) -> list[tuple[int, tuple[int, ...], str, str]]:
    """Each storage once: bytes, shape, type, and where it was saved."""
    own = {t.untyped_storage().data_ptr() for t in (*model.parameters(), *model.buffers())}
    found: dict[int, tuple[int, tuple[int, ...], str, str]] = {}
    alive = []  # a freed storage's address would be taken for another's

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own and storage.data_ptr() not in found:
            frames = [f for f in traceback.extract_stack() if "transformers" in f.filename]
            line = (frames[-1].line or "") if frames else ""
            kind = str(tensor.dtype).removeprefix("torch.")
            found[storage.data_ptr()] = (storage.nbytes(), tuple(tensor.shape), kind, line)
            alive.append(tensor)
        return tensor

    ids = torch.randint(0, int(model.config.vocab_size), (1, TOKENS))
    with (
        torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor),
        torch.autocast("cpu", torch.bfloat16, enabled=autocast),
    ):
        model(input_ids=ids)
    return list(found.values())


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("config", type=Path)
    parser.add_argument("--numerics", choices=("bf16", "fp32", "autocast"), default="bf16")
    parser.add_argument("--attention", choices=("sdpa", "eager"), default="sdpa")
    return parser.parse_args()


if __name__ == "__main__":
    main()
