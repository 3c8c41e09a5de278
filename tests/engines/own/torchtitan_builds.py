"""Run in an environment with torchtitan: builds the trainer of one rank of a world that is not there.

``python torchtitan_builds.py --module NAME --config FUNCTION`` in the folder of the module, with RANK and
WORLD_SIZE set. Prints the classes of the model's parts; torchtitan's own error where it refuses. A tokenizer
of four words and a text of them are put where torchtitan's repository has its own.
torchtitan asks for a GPU by name: on a machine without one the CPU is given that name's functions.
"""

import json
import types
from pathlib import Path

import torch
import torch._utils

WORDS = ("<unk>", "<bos>", "<eos>", "word")
MODEL = {
    "type": "WordLevel",
    "vocab": {word: n for n, word in enumerate(WORDS)},
    "unk_token": "<unk>",
}
ASSETS = {
    "tokenizer/tokenizer.json": {
        "version": "1.0",
        "model": MODEL,
        "pre_tokenizer": {"type": "Whitespace"},
    },
    "tokenizer/tokenizer_config.json": {"bos_token": "<bos>", "eos_token": "<eos>"},
    "c4_test/data.json": {"text": "word " * 1000},
}
for path, content in ASSETS.items():
    file = Path("tests/assets") / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content) + "\n")

torch._utils._get_available_device_type = lambda: "cpu"
for name, stands_in in {
    "get_device_name": lambda *_: "cpu",
    "get_device_properties": lambda *_: types.SimpleNamespace(name="cpu", total_memory=24 << 30),
    "reset_peak_memory_stats": lambda *_: None,
    "empty_cache": lambda *_: None,
    "memory_stats": lambda *_: {},
}.items():
    if not hasattr(torch.cpu, name):
        setattr(torch.cpu, name, stands_in)

from torchtitan.config import ConfigManager  # noqa: E402 (the names above are looked up on import)

trainer = ConfigManager().parse_args().build()
print("built", [type(part).__name__ for part in trainer.model_parts])
