"""What a command line or a YAML file of ``vllm serve`` says (``engine/arg_utils.py`` of 0.32.0)."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from meshfit.engines.engine_file import stray_words
from meshfit.engines.options import option_table
from meshfit.engines.server_options import (
    WEIGHTS,
    ServerOptions,
    notes_of,
    of_script,
    of_yaml,
    require_one_file,
    stated_memory,
    word_counts,
)
from meshfit.engines.serving_file import ServingFile
from meshfit.engines.syntax.setting import Setting, Settings
from meshfit.engines.syntax.shell import Script, read_script
from meshfit.engines.vllm.write import BUDGET
from meshfit.errors import InputError

PROGRAM = re.compile(
    r"(\S*/)?vllm serve\b|vllm\.entrypoints\.(openai\.|launchers\.)?api_server\b|\S*vllm-openai\S*"
)
"""``vllm serve``, the module behind it, or the image that starts it."""

_UNITS = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12,
          "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}  # fmt: skip
_CACHE_BYTES = {"auto": None, "bfloat16": 2.0, "float16": 2.0, "half": 2.0, "float32": 4.0,
                "fp8": 1.0, "fp8_e4m3": 1.0, "fp8_e5m2": 1.0}  # fmt: skip
NOT_IN_ANSWER = (
    "--cpu-offload-gb",
    "--decode-context-parallel-size",
    "--enable-lora",
    "--hf-overrides",
    "--kv-cache-memory-bytes",
    "--kv-transfer-config",
    "--num-gpu-blocks-override",
    "--prefill-context-parallel-size",
    "--speculative-config",
)
"""Options that change memory or time and that are not predicted from a file."""


def read(text: str) -> ServingFile:
    """What a script, or one command line, says.

    Raises:
        InputError: a number is none, or options lie in another file too.
    """
    table = option_table("vllm")
    script = read_script(text, word_counts(table), program=PROGRAM)
    options = of_script(_without_levels(script), table)
    words = [word for word in options.positional if word.value != "serve"]
    options = replace(options, unknown=(*options.unknown, *stray_words(words[1:])))
    return _file(options, "a command of vLLM", model=words[0] if words else None)


def read_config(text: str) -> ServingFile:
    """What a YAML file of ``vllm serve --config`` says."""
    return _file(of_yaml(text, option_table("vllm")), "a YAML file of vLLM", model=None)


def _without_levels(script: Script) -> Script:
    """``-O3``, which the parser takes for ``--optimization-level 3``, left out: it is no option's name."""
    kept = tuple(one for one in script.settings if not re.match(r"-O(\d|$|=)", one.name))
    return replace(script, settings=kept)


def _file(options: ServerOptions, form: str, *, model: Setting | None) -> ServingFile:
    require_one_file(options)
    named = options.named
    tp = named.count("--tensor-parallel-size")
    return ServingFile(
        engine="vllm",
        form=form,
        settings=options.given,
        spelling=options.spelling,
        unknown=options.unknown,
        model=named.text("--model") or (str(model.value) if model else None),
        weights=WEIGHTS.get(named.text("--quantization")),
        tp=tp,
        pp=named.count("--pipeline-parallel-size"),
        cp=named.count("--prefill-context-parallel-size"),
        replicas=named.count("--data-parallel-size"),
        joins_replicas=True,
        spreads_experts=named.is_on("--enable-expert-parallel"),
        hosts=named.count("--nnodes"),
        longest_tokens=_longest(named),
        budget=_budget(options),
        switches=_switches(named, options.variables),
        notes=tuple(notes_of(options, NOT_IN_ANSWER, _CACHE_BYTES)),
    )


def _longest(named: Settings) -> int | None:
    found = named.get(BUDGET.longest)
    if found is None or str(found.value).lower() in ("auto", "-1"):
        return None
    return _count(found)


def _count(setting: Setting) -> int:
    """A number of tokens as vLLM reads it: ``16k`` is 16,000, ``16K`` 16,384."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmgtKMGT])", str(setting.value))
    if match is None:
        return setting.at_least(1)
    number, unit = match.groups()
    if "." in number and unit.isupper():
        raise InputError(
            f"line {setting.line}: {setting.name} {setting.value}: binary units take no decimals; did "
            f"you mean {number}{unit.lower()}?"
        )
    return int(float(number) * _UNITS[unit])


def _budget(options: ServerOptions) -> dict[str, Any]:
    """What the file says of ``serve.setting.budget.ServingBudget``."""
    budget = stated_memory(options, BUDGET, _CACHE_BYTES)
    for key, name in (("step_tokens", BUDGET.step_tokens), ("max_sequences", BUDGET.max_sequences)):
        if (found := options.named.get(name)) is not None:
            budget[key] = _count(found)
    return budget


def _switches(named: Settings, variables: Mapping[str, str]) -> dict[str, Any]:
    """Facts for rules beyond the layout (``mesh.rulebook``)."""
    switches: dict[str, Any] = {
        "dcp": named.count("--decode-context-parallel-size"),
        "data_parallel_size": named.count("--data-parallel-size"),
        "eplb": named.is_on("--enable-eplb"),
        "elastic_ep": named.is_on("--enable-elastic-ep"),
        "chunked_prefill": "--no-enable-chunked-prefill" not in named,
        "allows_longer": variables.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN") == "1",
    }
    redundant = named.get("--eplb-config.num_redundant_experts")
    if redundant is not None:
        switches["num_redundant_experts"] = redundant.at_least(0)
    if named.text("--distributed-executor-backend") not in ("ray", "external_launcher"):
        switches["num_hosts"] = named.count("--nnodes")
    if (parts := variables.get("VLLM_PP_LAYER_PARTITION")) is not None:
        counts = [int(part) for part in parts.split(",") if part.strip().isdigit()]
        switches |= {
            "stage_layers_given": True,
            "stage_layers_length": len(counts),
            "stage_layers_sum": sum(counts),
            "stage_layers_min": min(counts, default=0),
        }
    return switches
