"""vLLM's own parser and configuration take what is written for it (`make test-serving`)."""

import os
import subprocess
from pathlib import Path

import pytest

from meshfit.cluster.shorthand import read_shorthand
from meshfit.engines import engine_profile
from meshfit.engines.exports import SERVER_EXPORTS
from meshfit.errors import InputError
from meshfit.serve.setting.layout import ServingLayout
from meshfit.serve.setting.space import serving_space
from meshfit.workload.models import read_model
from tests.engines.test_server_exports import handover
from tools.server_cases import vllm

pytestmark = pytest.mark.vllm

MODELS = ("llama-3.1-8b", "qwen3-30b-a3b")
SHIM = '#!/bin/bash\nprintf "%s\\0" "$@" > "$MESHFIT_ARGUMENTS"\n'


def arguments_of(text, folder):
    """What a script starts vLLM with, once a shell has read it."""
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "bin" / "vllm").write_text(SHIM)
    (folder / "bin" / "vllm").chmod(0o755)
    (folder / "serve.sh").write_text(text)
    held = folder / "arguments"
    environment = os.environ | {
        "PATH": f"{folder}/bin:{os.environ['PATH']}",
        "MESHFIT_ARGUMENTS": str(held),
    }
    subprocess.run(["bash", folder / "serve.sh"], check=True, env=environment)
    serve, _model, *options = held.read_text().rstrip("\0").split("\0")
    assert serve == "serve"
    return options


def scripts():
    """Every layout of 16 accelerators that can be said, as (model, label, script)."""
    profile = engine_profile("vllm")
    for model in MODELS:
        space = serving_space(read_model(model), profile, read_shorthand("2x8 H100-SXM"), 16)
        for layout in space.layouts:
            try:
                files = SERVER_EXPORTS["vllm"](handover("vllm", model, layout))
            except InputError:
                continue
            yield model, layout.label, files["serve.sh"]
    full = handover(
        "vllm",
        "llama-3.1-8b",
        ServingLayout(tp=2),
        memory_fraction=0.85,
        step_tokens=4096,
        max_sequences=64,
        quantization="fp8",
        has_small_cache=True,
        longest_tokens=32768,
    )
    yield "llama-3.1-8b", "every option", SERVER_EXPORTS["vllm"](full)["serve.sh"]


def test_what_is_written_is_taken_and_what_is_wrong_is_refused(tmp_path):
    refused = {}
    with vllm(Path(os.environ["MESHFIT_VLLM_PYTHON"])) as ask:
        for model, label, text in scripts():
            answer = ask([model, *arguments_of(text, tmp_path)])
            if answer:
                refused[f"{model} {label}"] = answer
        assert "unrecognized arguments" in ask([MODELS[0], "--tensor-paralel-size", "2"])
        assert "divisible by tensor parallel size" in ask(
            [MODELS[0], "--tensor-parallel-size", "3"]
        )
    assert refused == {}
