"""A layout of a serving job as files that start its servers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from meshfit.cluster.topology import Topology
from meshfit.engines import engine_profile
from meshfit.engines.around.kinds import jobs_around
from meshfit.engines.exports import SERVER_EXPORTS
from meshfit.engines.server_handover import ServerHandover
from meshfit.errors import InputError
from meshfit.funnel.sweep.handover import write_files
from meshfit.serve.job.clusters import topology_for
from meshfit.serve.job.spec import ServingJob
from meshfit.serve.load.usual import whole_length
from meshfit.serve.memory.replica import ReplicaMemory, replica_memory
from meshfit.serve.setting.layout import ServingLayout
from meshfit.serve.setting.space import require_legal
from meshfit.units import format_bytes
from meshfit.workload.models import repository_of


def export_server(
    job: ServingJob, engine: str, folder: Path, jobs: Sequence[str] = ()
) -> list[Path]:
    """Writes the files with which ``engine`` serves the job's layout, and ``jobs`` of these kinds around
    them.

    Raises:
        InputError: the job has no layout of one pool, the engine refuses it, or has no options for it;
            or no such kind of job, or none that is for servers.
    """
    layout = job.layout
    if not isinstance(layout, ServingLayout):
        raise InputError(
            "no layout of one pool to export: give `layout:` in the job or --layout replicas=2,tp=4"
        )
    profile, topology = engine_profile(engine), topology_for(job, layout)
    require_legal(job.model, layout, profile, topology)
    memory = replica_memory(
        job.model,
        layout,
        profile,
        topology.accelerator,
        request_tokens=job.model.max_position_embeddings,
        budget=job.budget(profile, topology.accelerator),
    )
    given = ServerHandover(
        layout=layout,
        label=layout.label,
        accelerators=layout.num_accelerators,
        model=str(job.weights or repository_of(job.model.name) or job.model.name),
        has_experts=job.model.moe is not None,
        profile=profile,
        gpus_per_host=topology.gpus_per_host,
        prediction=_prediction(memory, topology),
        notes=_notes(job),
        memory_fraction=job.memory_fraction,
        step_tokens=job.step_tokens,
        max_sequences=job.max_sequences,
        quantization="fp8" if _turns_into_8_bits(job) else None,
        has_small_cache=job.cache_element_bytes == 1,
        longest_tokens=_longest(job, memory),
    )
    files = SERVER_EXPORTS[engine](given)
    around = jobs_around(given.host_script(topology.accelerator), jobs)
    return write_files(files | around, folder)


def _longest(job: ServingJob, memory: ReplicaMemory) -> int | None:
    """What the cache holds of one request where that is less than the model's positions."""
    if memory.verdict == "fits":
        return None
    held = whole_length(memory.kv_tokens // memory.attention_groups)
    if held < job.longest_tokens:
        raise InputError(
            f"{job.layout.label if job.layout else ''} does not fit: the cache holds {held:,} tokens of one "
            f"request, and the job's longest has {job.longest_tokens:,}"
        )
    return held


def _prediction(memory: ReplicaMemory, topology: Topology) -> str:
    held = memory.memory
    return (
        f"Predicted on {topology.accelerator.name}: {format_bytes(held.weights)} of weights and "
        f"{format_bytes(held.kv_cache)} of KV cache a rank, {memory.kv_tokens:,} tokens a replica."
    )


def _quantization(job: ServingJob) -> dict[str, Any]:
    """How the weights are quantised; nothing where they are not."""
    found: dict[str, Any] = job.model.config.get("quantization_config") or {}
    return found


def _turns_into_8_bits(job: ServingJob) -> bool:
    """Whether the servers turn 16-bit weights into such ones while they load."""
    found = _quantization(job)
    return found.get("quant_method") == "fp8" and "weight_block_size" not in found


def _notes(job: ServingJob) -> tuple[str, ...]:
    found = _quantization(job)
    if not found or _turns_into_8_bits(job):
        return ()
    method = found.get("quant_method", "the model's config")
    return (f"MODEL must hold weights quantised by {method}.",)
