"""A sweep of five layouts, two of which failed, as the records a launcher would leave.

Tests get the makers below through fixtures, so that they hold under any import mode of pytest.
"""

import pytest

from meshfit.breakdown import Interval, MemoryBreakdown, Prediction, TimeBreakdown
from meshfit.mesh.spec import LayoutSpec, make_layout
from meshfit.record.schema import Failure, ParameterGradient, Parity, RankReport, Record, RunResult
from meshfit.report.documents import fit, plan
from meshfit.report.documents.fit import CandidateDocument, FitDocument
from meshfit.report.documents.plan import PlanDocument

MIB = 2**20
CAPACITY = 1024 * MIB
WARMUP_STEPS = 2
LAYOUTS = {
    "ddp": make_layout({"dp_replicate": 4, "micro_batch_size": 2}),
    "fsdp": make_layout({"dp_shard": 4, "micro_batch_size": 2}),
    "tp": make_layout({"tp": 2, "dp_shard": 2}),
    "pp": make_layout({"pp": 2, "dp_replicate": 2}),
    "interleaved": make_layout({"pp": 2, "vpp": 2, "dp_replicate": 2}),
}


def prediction_of(layout: LayoutSpec, step_s: float = 0.1) -> Prediction:
    states = 64 * MIB // (layout.dp_shard * layout.tp * layout.pp)
    memory = MemoryBreakdown(
        parameters=states, gradients=states, optimizer=2 * states, activations=90 * MIB
    )
    exposed = {"all_reduce.dp_replicate": 0.1 * step_s}
    return Prediction(
        memory=memory,
        time=TimeBreakdown(compute=0.9 * step_s, exposed=exposed),
        memory_total=Interval(low=0.9 * memory.total, middle=memory.total, high=1.2 * memory.total),
        step_time=Interval(low=0.8 * step_s, middle=step_s, high=1.4 * step_s),
        tokens_per_s=1024 / step_s,
        binding="compute",
        profile="native",
    )


def result_of(layout: LayoutSpec, step_s: float = 0.1, ranks: int = 4) -> RunResult:
    memory = prediction_of(layout).memory
    return RunResult(
        losses=tuple(5.5 - 0.05 * step for step in range(8)),
        gradient_norms=(1.0,) * 8,
        useful_tokens_per_step=1024,
        gradients=(
            ParameterGradient(name="lm_head.weight", error=2e-7, ratio=1.0),
            ParameterGradient(name="model.norm.weight", error=4e-7, ratio=1.0),
        ),
        ranks=tuple(
            RankReport(
                rank=rank,
                host="host0",
                step_s=(1.0, 0.5, *(step_s * (1 + 0.03 * ((rank + i) % 4)) for i in range(6))),
                input_wait_s=(0.0,) * 8,
                memory=memory,
                resident_bytes=420 * MIB,
                stage=rank * layout.pp // ranks,
            )
            for rank in range(ranks)
        ),
    )


def parity_of(ok: bool = True) -> Parity:
    return Parity(
        ok=ok,
        kind="single_process",
        loss_error=2e-7 if ok else 0.5,
        gradient_norm_error=3e-7,
        gradient_error=4e-7 if ok else 1.0,
        worst_parameter="model.norm.weight",
        tolerance_loss=5e-6,
        tolerance_gradient=5e-6,
        factor=None if ok else "dp_replicate = 2",
    )


def record_of(name: str, *, repeat: int = 0, step_s: float = 0.1, **changes: object) -> Record:
    layout = LAYOUTS[name]
    row = {
        "plan_hash": "abc",
        "candidate": layout.slug,
        "repeat": repeat,
        "purpose": "measure",
        "layout": layout,
        "outcome": "ok",
        "started_at": "2026-01-02T03:04:05Z",
        "seconds": 21.0,
        "result": result_of(layout, step_s),
        "parity": parity_of(),
        "prediction": prediction_of(layout),
        "folder": f"candidates/{layout.slug}/{repeat}",
    }
    return Record(**(row | changes))


@pytest.fixture
def make_record():
    return record_of


@pytest.fixture
def make_candidate():
    """One row from records, with the sweep's warm-up."""

    def candidate(*records: Record, **options: object) -> CandidateDocument:
        return fit.candidate(records, warmup_steps=WARMUP_STEPS, **options)

    return candidate


@pytest.fixture
def plan_document() -> PlanDocument:
    candidates = [
        plan.plan_candidate(
            layout=layout,
            prediction=prediction_of(layout),
            verdict=verdict,
            capacity_bytes=CAPACITY,
            baseline=name == "ddp",
        )
        for (name, layout), verdict in zip(
            LAYOUTS.items(), ("fits", "fits", "tight", "does_not_fit", "fits"), strict=True
        )
    ]
    return {
        "schema_version": 1,
        "space": {"legal": 41, "rejected": {"tp_divides_kv_heads": 12, "layers_fill_stages": 30}},
        "seconds": 0.021,
        "seconds_by_tier": {"rules": 0.001, "estimate": 0.02},
        "candidates": candidates,
        "headroom": 0.1,
    }


@pytest.fixture
def fit_document(plan_document: PlanDocument) -> FitDocument:
    crash = Failure(message="boom in layer 3", rank=1, phase="step 2", signal=6)
    rows = [
        fit.candidate(
            [record_of("ddp", repeat=r, step_s=0.08 + 0.002 * r) for r in range(3)],
            warmup_steps=WARMUP_STEPS,
            reason="Won: highest measured throughput; compute binds.",
            absent={"exposed": "not measured yet", "mfu": "no peak is defined for CPU ranks"},
        ),
        fit.candidate(
            [record_of("fsdp", repeat=r, step_s=0.11) for r in range(3)],
            warmup_steps=WARMUP_STEPS,
            reason="Lost by 27%: all_gather.dp_shard.",
            baseline=True,
        ),
        fit.candidate(
            [record_of("tp", step_s=0.3)], warmup_steps=WARMUP_STEPS, reason="Lost by 73%."
        ),
        fit.candidate(
            [record_of("pp", outcome="parity_failed", parity=parity_of(ok=False))],
            warmup_steps=WARMUP_STEPS,
            reason="Excluded: its gradients are not those of the reference.",
        ),
        fit.candidate(
            [record_of("interleaved", outcome="crash", result=None, parity=None, failure=crash)],
            warmup_steps=WARMUP_STEPS,
        ),
    ]
    winner = LAYOUTS["ddp"]
    return {
        "schema_version": 1,
        "outcome": "ok",
        "winner": {
            "label": winner.label,
            "layout": winner.as_json(),
            "engine": "native",
            "accelerator": "CPU rank",
            "world_size": 4,
        },
        "reason": "Highest measured useful throughput among what fits; second place lost by 27%.",
        "candidates": rows,
        "notes": ["CPU ranks: their speed order says nothing about GPUs."],
        "job": {
            "name": "tiny-llama",
            "workload": {
                "sequence_length": 128,
                "global_batch_size": 8,
                "precision": "fp32",
                "optimizer": "adamw",
                "data": {"source": "text", "path": "${stdlib}"},
            },
        },
        "model": {
            "name": "examples/tiny/config.json",
            "parameters": {
                "total": 1_000_000,
                "active": 1_000_000,
                "by_part": {"embedding": 250_000, "mlp_or_other": 500_000, "lm_head": 250_000},
            },
            "kv_cache": {"bytes_per_token": 512},
            "flops": {
                "forward_per_token": 2e6,
                "training_per_token": 6e6,
                "sequence_length": 128,
            },
        },
        "topology": {
            "accelerators": 4,
            "accelerator": "CPU rank",
            "capacity": CAPACITY,
            "levels": [
                {
                    "name": "host",
                    "size": 4,
                    "kind": "bus",
                    "bandwidth": 4e9,
                    "from": "guess",
                }
            ],
            "numa_nodes": 1,
            "warnings": [],
        },
        "environment": {"torch": "2.13.0+cpu", "threads_per_rank": 1, "host": {"cpu": "x86"}},
        "plan": plan_document,
        "reference": {
            "kind": "single_process",
            "losses": [5.5 - 0.05 * step for step in range(8)],
            "gradient_norms": [1.0] * 8,
        },
        "headroom": 0.1,
        "warmup_steps": WARMUP_STEPS,
        "judged_steps": 5,
        "created_at": "2026-01-02T03:10:00Z",
    }
