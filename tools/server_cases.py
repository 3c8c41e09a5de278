"""Command lines of vLLM, right or wrong in many ways, judged by our rules and by vLLM itself."""

import json
import os
import random
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from meshfit.job.engine_file import Added
from meshfit.serve.job.engine_file import broken_rules, served_file
from meshfit.workload.models import read_model

MODELS = ("llama-3.1-8b", "qwen3-30b-a3b", "deepseek-v3")
ANSWERS = Path(__file__).with_name("vllm_answers.py")

_ENVIRONMENT = {
    "VLLM_TARGET_DEVICE": "cpu",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_HOST_IP": "127.0.0.1",
    "HF_HUB_OFFLINE": "1",
}

Vllm = Callable[[list[str]], str]
"""What vLLM refuses a command with, of which the first word is a model of ``MODELS``."""


@contextmanager
def vllm(python: Path) -> Iterator[Vllm]:
    """vLLM in its own environment, started once for many commands; the models are their configs alone."""
    with tempfile.TemporaryDirectory() as folder:
        for name in MODELS:
            (Path(folder) / name).mkdir()
            config = {k: v for k, v in read_model(name).config.items() if k != "auto_map"}
            (Path(folder) / name / "config.json").write_text(json.dumps(config))
        process = subprocess.Popen(
            [str(python), str(ANSWERS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=os.environ | _ENVIRONMENT,
        )
        assert process.stdin is not None and process.stdout is not None

        def ask(arguments: list[str]) -> str:
            model, *options = arguments
            words = {"arguments": [str(Path(folder) / model), *options]}
            process.stdin.write(json.dumps(words) + "\n")
            process.stdin.flush()
            answer: str = json.loads(process.stdout.readline())
            return answer

        try:
            yield ask
        finally:
            process.stdin.close()
            process.wait(timeout=60)


def random_command(draw: random.Random) -> list[str]:
    """A model and options, each of which is left out more often than not.

    Context parallelism of the prefill is left out: the runner of vLLM's CPU build refuses it.
    """
    model = draw.choice(MODELS)
    sizes = {
        "--tensor-parallel-size": draw.choice((1, 2, 2, 3, 4, 4, 8, 8, 16)),
        "--pipeline-parallel-size": draw.choice((1, 1, 1, 1, 2, 3, 4)),
        "--data-parallel-size": draw.choice((1, 1, 1, 2, 3, 4)),
        "--decode-context-parallel-size": draw.choice((*[1] * 9, 2, 3, 4)),
        "--max-model-len": draw.choice((*[8192] * 7, *[16384] * 2, 200000)),
        "--max-num-batched-tokens": draw.choice((1, 1, 1, 128, 2048, 16384)),
        "--max-num-seqs": draw.choice((1, 1, 64, 512)),
        "--nnodes": draw.choice((1, 1, 1, 1, 2, 4)),
        "--eplb-config.num_redundant_experts": draw.choice((*[1] * 9, 8)),
    }
    words = [model]
    for name, size in sizes.items():
        words += [name, str(size)] if size > 1 else []
    if sizes["--nnodes"] > 1:
        words += ["--node-rank", "0", "--master-addr", "localhost"]
    spreads = draw.random() < (0.05 if model == "llama-3.1-8b" else 0.5)
    words += ["--enable-expert-parallel"] if spreads else []
    words += ["--enable-eplb"] if draw.random() < (0.4 if spreads else 0.05) else []
    words += ["--no-enable-chunked-prefill"] if draw.random() < 0.05 else []
    return words


def our_rules(arguments: list[str]) -> list[str]:
    """Names of the rules that a command breaks."""
    model, *options = arguments
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "serve.sh"
        path.write_text(f"vllm serve {model} {' '.join(options)}\n")
        given = served_file(path, Added(accelerator="H100-SXM"))
    return [one.rule for one in broken_rules(given)]
