"""How a job is trained: precision, method, optimizer and runtime as a person writes them."""

import re
from dataclasses import replace
from pathlib import Path

from meshfit.cluster.topology import AcceleratorSpec, Topology
from meshfit.errors import InputError
from meshfit.job.schema import (
    DEFAULT_ADAPTER_RANK,
    AdapterFile,
    AssumeFile,
    MethodFile,
    PrecisionFile,
    RuntimeFile,
)
from meshfit.units import parse_bytes
from meshfit.workload.documents import DocumentSpec, Filling, read_documents
from meshfit.workload.training import (
    PRECISIONS,
    AdapterSpec,
    AssumptionSpec,
    MatmulType,
    OptimizerName,
    PrecisionName,
    PrecisionSpec,
    RuntimeSpec,
    TrainingSpec,
)

ELEMENT_BYTES: dict[str, int] = {"fp32": 4, "bf16": 2, "fp16": 2}

QLORA_BITS = 4
RUN_PRECISIONS: tuple[PrecisionName, ...] = ("fp32", "bf16_mixed")
RUN_OPTIMIZERS: tuple[OptimizerName, ...] = ("adamw", "sgd", "muon")
RUN_RUNTIME: tuple[str, ...] = ("expert_capacity_factor", "router_bias_rate", "expert_imbalance")
"""Keys of a runtime that the native engine does as told; the last is what predictions assume."""


def precision_of(given: PrecisionName | PrecisionFile) -> PrecisionSpec:
    """Bytes of every copy. Gradients and moments are as the master copy where they are left out."""
    if isinstance(given, str):
        return PRECISIONS[given]
    matmul: MatmulType = "fp8" if given.fp8_recipe else given.compute
    return PrecisionSpec(
        name=_nearest_name(given),
        matmul=matmul,
        compute_bytes=ELEMENT_BYTES[given.compute],
        parameter_bytes=ELEMENT_BYTES[given.master],
        gradient_bytes=ELEMENT_BYTES[given.gradients or given.master],
        moment_bytes=ELEMENT_BYTES[given.moments or given.master],
    )


def without_bf16(precision: PrecisionSpec, accelerator: AcceleratorSpec) -> str | None:
    """What a person must know where bf16 is asked of an accelerator without it (V100, T4)."""
    peaks = accelerator.peak_flops_per_s
    if precision.matmul != "bf16" or "bf16" in peaks or not {"fp32", "fp16"} <= set(peaks):
        return None
    faster = peaks["fp16"] / peaks["fp32"]
    return (
        f"{accelerator.name} has no bf16 arithmetic: matmuls are timed at its fp32 rate; "
        f"precision fp16_mixed has {faster:.1f} times as much"
    )


def _nearest_name(given: PrecisionFile) -> PrecisionName:
    """The named precision that computes alike: rates and tolerances go by it."""
    if given.fp8_recipe is not None:
        return "fp8_mixed"
    if given.compute == "fp32":
        return "fp32"
    if given.compute == "fp16":
        return "fp16_mixed"
    return "bf16_mixed" if given.master == "fp32" else "bf16"


def adapter_of(given: str | MethodFile) -> AdapterSpec | None:
    """The adapters of a method; None where every weight is trained.

    Raises:
        InputError: a mapping that names neither lora nor qlora, or both.
    """
    if given == "full":
        return None
    if isinstance(given, str):
        return AdapterSpec(
            rank=DEFAULT_ADAPTER_RANK, base_bits=QLORA_BITS if given == "qlora" else None
        )
    if (given.lora is None) == (given.qlora is None):
        raise InputError(
            "workload.method: write full, lora, qlora, or one of them with its keys, as in "
            "{lora: {rank: 16, targets: [q_proj, v_proj]}}"
        )
    adapter = given.lora or given.qlora or AdapterFile()
    return AdapterSpec(
        rank=adapter.rank,
        targets=tuple(adapter.targets),
        base_bits=QLORA_BITS if given.qlora is not None else None,
    )


def runtime_of(file: RuntimeFile | None, precision: PrecisionName | PrecisionFile) -> RuntimeSpec:
    """The same as a value; a recipe of a precision's mapping goes where the runtime names none.

    Raises:
        InputError: two different fp8 recipes, or a bucket that is no size.
    """
    keys = file.model_dump() if file is not None else {}
    bucket = keys.pop("bucket", None)
    keys.pop("power_limit", None)  # of the accelerator
    recipe = None if isinstance(precision, str) else precision.fp8_recipe
    if recipe and keys.get("fp8_recipe") not in (None, recipe):
        raise InputError(
            f"runtime.fp8_recipe is {keys['fp8_recipe']}, workload.precision.fp8_recipe is "
            f"{recipe}; write one of them"
        )
    if recipe:
        keys["fp8_recipe"] = recipe
    if bucket is not None:
        keys["bucket_bytes"] = parse_bytes(bucket)
    return RuntimeSpec(**keys)


def assumptions_of(file: AssumeFile) -> AssumptionSpec:
    """The same as a value. Experts' imbalance goes with the runtime (``with_expert_imbalance``)."""
    return AssumptionSpec(
        straggler=file.straggler,
        contention=1.0 if file.contention is None else file.contention,
        length_imbalance=file.length_imbalance,
    )


def with_expert_imbalance(runtime: RuntimeSpec, assume: AssumeFile) -> RuntimeSpec:
    """``runtime`` with the imbalance that a job assumes.

    Raises:
        InputError: the runtime names another one.
    """
    assumed = assume.expert_imbalance
    if assumed is None:
        return runtime
    if runtime.expert_imbalance not in (1.0, assumed):
        raise InputError(
            f"runtime.expert_imbalance is {runtime.expert_imbalance:g}, assume.expert_imbalance is "
            f"{assumed:g}; write one of them"
        )
    return replace(runtime, expert_imbalance=assumed)


def documents_of(lengths: str | None, filling: Filling, base: Path) -> DocumentSpec | None:
    """Documents by the length, from a file relative to ``base``; None without one.

    Raises:
        InputError: the file cannot be read, or a line of it is no length.
    """
    return None if lengths is None else read_documents(base / Path(lengths).expanduser(), filling)


def power_limited(topology: Topology, runtime: RuntimeFile | None) -> Topology:
    """``topology`` with its accelerators held to ``power_limit``: ``450 W``, or watts.

    Raises:
        InputError: it is written in another way, or 0.
    """
    limit = None if runtime is None else runtime.power_limit
    if limit is None:
        return topology
    match = re.fullmatch(r"(\d{1,6}(?:\.\d+)?)\s*W?", str(limit).strip())
    if match is None or float(match.group(1)) <= 0:
        raise InputError(f"runtime.power_limit {limit!r}: write it like '450 W'")
    accelerator = replace(topology.accelerator, power_limit_w=float(match.group(1)))
    return replace(topology, accelerator=accelerator)


def require_run(training: TrainingSpec, documents: str) -> None:
    """Does nothing for a workload that the native engine runs.

    Raises:
        InputError: it trains with a method, precision, optimizer or runtime that only planning
            knows; the message names what is run.
    """
    for key, value, known in (
        ("workload.method", training.method, ("full", "lora")),
        ("workload.precision", training.precision.known_as, RUN_PRECISIONS),
        ("workload.optimizer", training.optimizer, RUN_OPTIMIZERS),
        ("workload.documents", documents, ("packed",)),
    ):
        if value not in known:
            raise InputError(
                f"{key} {value} is not run by the native engine, which runs {', '.join(known)}; "
                f"`meshfit check` and `meshfit plan` take it"
            )
    if training.documents is not None:
        raise InputError(
            "workload.lengths is not run by the native engine, whose sequences are all full; "
            "`meshfit check` and `meshfit plan` take it"
        )
    default = RuntimeSpec()
    changed = [k for k, v in vars(training.runtime).items() if v != getattr(default, k)]
    not_run = [key for key in changed if key not in RUN_RUNTIME]
    if not_run:
        raise InputError(
            f"runtime.{not_run[0]} is not set by the native engine, which computes eagerly with "
            f"PyTorch's defaults; leave it out, or use `meshfit check` and `meshfit plan`"
        )
