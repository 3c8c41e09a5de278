"""What a command line or a YAML file of SGLang's server says (``srt/server_args.py`` of 0.5.23)."""

import re
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
from meshfit.engines.sglang.write import BUDGET
from meshfit.engines.syntax.shell import read_script

PROGRAM = re.compile(r"sglang\.launch_server\b|(\S*/)?sglang serve\b")

_CACHE_BYTES = {"auto": None, "bfloat16": 2.0, "bf16": 2.0, "fp8_e4m3": 1.0, "fp8_e5m2": 1.0}
NOT_IN_ANSWER = (
    "--attn-cp-size",
    "--cpu-offload-gb",
    "--dcp-size",
    "--disaggregation-mode",
    "--enable-lora",
    "--json-model-override-args",
    "--max-total-tokens",
    "--moe-dense-tp-size",
    "--moe-dp-size",
    "--speculative-algorithm",
)
"""Options that change memory or time and that are not predicted from a file."""


def read(text: str) -> ServingFile:
    """What a script, or one command line, says.

    Raises:
        InputError: a number is none, or options lie in another file too.
    """
    table = option_table("sglang")
    script = read_script(text, word_counts(table), program=PROGRAM)
    options = of_script(script, table)
    words = [word for word in options.positional if word.value != "serve"]
    options = replace(options, unknown=(*options.unknown, *stray_words(words)))
    return _file(options, "a command of SGLang")


def read_config(text: str) -> ServingFile:
    """What a YAML file of ``--config`` says."""
    return _file(of_yaml(text, option_table("sglang")), "a YAML file of SGLang")


def _file(options: ServerOptions, form: str) -> ServingFile:
    require_one_file(options)
    named = options.named
    replicas, attention_dp = named.count("--dp-size"), named.count("--attn-dp-size")
    notes = notes_of(options, NOT_IN_ANSWER, _CACHE_BYTES)
    if named.is_on("--enable-dp-attention"):
        notes.append(
            "--enable-dp-attention is deprecated: --dp-size then counts groups of attention, as "
            "--attn-dp-size does"
        )
        if attention_dp == 1:
            replicas, attention_dp = 1, replicas
    return ServingFile(
        engine="sglang",
        form=form,
        settings=options.given,
        spelling=options.spelling,
        unknown=options.unknown,
        model=named.text("--model-path") or None,
        weights=WEIGHTS.get(named.text("--quantization")),
        tp=named.count("--tp-size"),
        pp=named.count("--pp-size"),
        replicas=replicas,
        attention_dp=attention_dp,
        ep=named.count("--ep-size"),
        hosts=named.count("--nnodes"),
        longest_tokens=named.count(BUDGET.longest) if BUDGET.longest in named else None,
        starts_short=True,
        budget=_budget(options),
        switches=_switches(options, replicas, attention_dp),
        notes=tuple(notes),
    )


def _budget(options: ServerOptions) -> dict[str, Any]:
    """What the file says of ``serve.setting.budget.ServingBudget``."""
    named, budget = options.named, stated_memory(options, BUDGET, _CACHE_BYTES)
    if (chunk := named.whole(BUDGET.step_tokens)) is not None and chunk > 0:
        budget["step_tokens"] = chunk
    if BUDGET.max_sequences in named:
        budget["max_sequences"] = named.count(BUDGET.max_sequences)
    return budget


def _switches(options: ServerOptions, replicas: int, attention_dp: int) -> dict[str, Any]:
    """Facts for rules beyond the layout (``mesh.rulebook``)."""
    named = options.named
    longer = options.variables.get("SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN", "")
    return {
        "allows_longer": longer.lower() in ("1", "true", "yes", "y"),
        "data_parallel_size": replicas,
        "attn_dp": attention_dp,
        "attn_cp": named.count("--attn-cp-size"),
        "moe_dp": named.count("--moe-dp-size"),
        "dcp": named.count("--dcp-size"),
        "prefill_cp": named.is_on("--enable-prefill-cp"),
        "num_hosts": named.count("--nnodes"),
    }
