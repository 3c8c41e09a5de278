"""Parts of ``check.sh``: each in a process of its own with its share of the time.

A part that fails, runs out of memory where it should not, or takes too long leaves its reason in the
document, and the others run.

    python benchmarks/gpu/check.py [--part NAME] [--device cuda|cpu] [--small]

``--small --device cpu`` runs what a CPU can of each part, on a tiny model: to test the script itself.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
import yaml

from meshfit.compare.utilisation import peak_of, utilisation
from meshfit.funnel.space.planning import estimate_candidates
from meshfit.job.read import read_job
from meshfit.job.spec import Job
from meshfit.launch.supervise import launch
from meshfit.mesh.candidates import Candidates
from meshfit.mesh.spec import LayoutSpec
from meshfit.record.environment import host_environment
from meshfit.record.schema import RunRequest
from meshfit.run.context.kernels import Problem, kernel_for
from meshfit.run.model.weights import write_initial_weights

LLAMA_1B = {
    "model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
    "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 128256,
    "max_position_embeddings": 8192, "tie_word_embeddings": True,
}  # fmt: skip
SMALL = LLAMA_1B | {
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 256,
}  # fmt: skip
SECONDS = {"memory": 230, "tables": 60, "throughput": 110, "ring": 40}
"""Part -> its share of 8 minutes; what is left is for starting."""


def memory_points(small: bool) -> list[dict[str, Any]]:
    """Twelve configurations from well inside a large GPU to beyond its memory."""
    sequences = (64, 128) if small else (4096, 8192)
    batches = (1, 2) if small else (1, 4, 16)
    policies = ("none", "full")
    points = [
        {"sequence_length": s, "micro_batch_size": b, "recompute": r}
        for s in sequences
        for b in batches
        for r in policies
    ]
    return (
        points
        if small
        else sorted(points, key=lambda p: p["sequence_length"] * p["micro_batch_size"])
    )


def job_of(folder: Path, device: str, small: bool, sequence: int, batch: int) -> Job:
    """A job of one rank on this device."""
    (folder / "config.json").write_text(json.dumps(SMALL if small else LLAMA_1B))
    document = {
        "schema_version": 1,
        "model": "config.json",
        "workload": {
            "kind": "training",
            "sequence_length": sequence,
            "global_batch": f"{batch} sequences",
            "precision": "bf16_mixed",
        },
        "cluster": {"here": {"ranks": 1, "device": device}},
    }
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(document))
    return read_job(path, calibration="none")


def run_one(job: Job, layout: LayoutSpec, folder: Path, weights: Path, **changes: Any) -> Any:
    """One launch of one rank."""
    request = RunRequest(
        plan_hash="",
        candidate=layout.label,
        purpose="measure",
        model_config=dict(job.model.config),
        weights=str(weights),
        layout=layout,
        training=job.training,
        device_type=job.topology.accelerator.device_type,
        steps=4,
        warmup_steps=1,
        track_memory=False,
    )
    return launch(replace(request, **changes), folder, deadline_s=100.0, hang_s=100.0)


def memory(device: str, small: bool) -> list[dict[str, Any]]:
    """Predicted, allocated and reserved bytes of each configuration, up to the out-of-memory edge."""
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_initial_weights(SMALL if small else LLAMA_1B, folder / "weights", 0)
        deadline = time.monotonic() + SECONDS["memory"] - 25
        for number, point in enumerate(memory_points(small)):
            batch = point["micro_batch_size"]
            job = job_of(folder, device, small, point["sequence_length"], batch)
            layout = LayoutSpec(micro_batch_size=batch, recompute=point["recompute"])
            estimates, _ = estimate_candidates(job, Candidates.from_layouts([layout]))
            predicted = estimates.prediction(0)
            row = {**point, "predicted": predicted.memory.as_json()}
            if time.monotonic() > deadline:
                rows.append(row | {"outcome": "not run: out of time"})
                continue
            ended = run_one(job, layout, folder / f"run-{number}", folder / "weights")
            row["outcome"] = ended.outcome
            if ended.result is not None:
                measured = ended.result.ranks[0].memory
                row["measured"] = measured.as_json() if measured else None
                row["step_s"] = statistics.median(ended.result.ranks[0].step_s[1:])
            elif ended.failure is not None:
                row["message"] = ended.failure.message[:300]
            rows.append(row)
    return rows


def tables(device: str, small: bool) -> dict[str, Any]:
    """Matmul and attention tables, by ``meshfit probe``."""
    with tempfile.TemporaryDirectory() as name:
        out = Path(name) / "curves.json"
        ranks = [] if device == "cuda" else ["--ranks", "1"]
        subprocess.run(
            [sys.executable, "-m", "meshfit.cli.main", "probe", *ranks, "--budget", "20 s",
             "--largest", "1 MiB" if small else "64 MiB", "--out", str(out)],
            check=True,
            capture_output=True,
        )  # fmt: skip
        return json.loads(out.read_text())


def throughput(device: str, small: bool) -> dict[str, Any]:
    """tokens/s and MFU in bf16: our runner, and a compiled loop written by hand."""
    sequence, batch, steps = (64, 2, 5) if small else (4096, 4, 25)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = SMALL if small else LLAMA_1B
        write_initial_weights(config, folder / "weights", 0)
        job = job_of(folder, device, small, sequence, batch)
        layout = LayoutSpec(micro_batch_size=batch)
        ended = run_one(job, layout, folder / "run", folder / "weights", steps=steps)
        if ended.result is None:
            raise RuntimeError(f"our runner: {ended.outcome}: {ended.failure}")
        ours_s = statistics.median(ended.result.ranks[0].step_s[steps // 3 :])
        by_hand_s = by_hand(config, device, sequence, batch, steps, compiled=not small)
    tokens = sequence * batch
    return {
        "ours": rate(job, tokens / ours_s),
        "by hand, compiled": rate(job, tokens / by_hand_s),
        "ours over by hand": by_hand_s / ours_s,
    }


def rate(job: Job, tokens_per_s: float) -> dict[str, Any]:
    peak = peak_of(job.topology.accelerator, job.training)
    found: dict[str, Any] = {"tokens_per_s": tokens_per_s}
    if peak is not None:
        used = utilisation(
            job.model, job.training, tokens_per_s_per_device=tokens_per_s, peak_flops_per_s=peak
        )
        found |= {"mfu": used.mfu, "peak_flops_per_s": peak, "formula": used.formula}
    return found


def by_hand(
    config: dict[str, Any], device: str, sequence: int, batch: int, steps: int, *, compiled: bool
) -> float:
    """Median seconds of a step as a person would write it: autocast, fused AdamW, torch.compile."""
    from transformers import LlamaConfig, LlamaForCausalLM  # noqa: PLC0415

    sizes = {key: value for key, value in config.items() if key != "model_type"}
    model = LlamaForCausalLM(LlamaConfig(**sizes, use_cache=False)).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    forward: Callable[..., Any] = torch.compile(model) if compiled else model
    tokens = torch.randint(config["vocab_size"], (batch, sequence + 1), device=device)
    times = []
    for _ in range(steps):
        synchronise(device)
        begin = time.perf_counter()
        with torch.autocast(device, dtype=torch.bfloat16):
            logits = forward(tokens[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(
            logits.float().flatten(0, 1), tokens[:, 1:].flatten()
        )
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        synchronise(device)
        times.append(time.perf_counter() - begin)
    return statistics.median(times[steps // 3 :])


def synchronise(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def ring(device: str, small: bool) -> list[dict[str, Any]]:
    """One block of ring attention, forward and backward, against PyTorch's own attention."""
    tokens = 64 if small else 2048
    return [
        block_error(device, dtype, causal, tokens)
        for dtype in (torch.float32, torch.bfloat16)
        for causal in (True, False)
    ]


def block_error(device: str, dtype: torch.dtype, causal: bool, tokens: int) -> dict[str, Any]:
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, heads, tokens, 64, device=device, dtype=dtype) for heads in (8, 2, 2))
    problem = Problem(q_BNSD=q, k_BGTD=k, v_BGTD=v, is_causal=causal, scale=64**-0.5)
    kernel = kernel_for(problem)
    out, lse = kernel.forward(problem)
    gradient = torch.randn_like(out)
    found = kernel.backward(problem, gradient, out, lse)
    exact = [x.double().requires_grad_() for x in (q, k, v)]
    expected = torch.nn.functional.scaled_dot_product_attention(
        *exact, is_causal=causal, enable_gqa=True
    )
    expected.backward(gradient.double())
    return {
        "kernel": type(kernel).__name__,
        "dtype": str(dtype).removeprefix("torch."),
        "causal": causal,
        "forward": relative_error(out, expected),
        **{
            f"gradient of {name}": relative_error(ours, theirs.grad)
            for name, ours, theirs in zip("qkv", found, exact, strict=True)
        },
    }


def relative_error(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    exact = theirs.detach()
    return float((ours.double() - exact).norm() / exact.norm())


PARTS: dict[str, Callable[[str, bool], Any]] = {
    "memory": memory,
    "tables": tables,
    "throughput": throughput,
    "ring": ring,
}


def in_process(part: str, device: str, small: bool) -> dict[str, Any]:
    """What a part found, or why it found nothing."""
    command = [sys.executable, __file__, "--part", part, "--device", device]
    begin = time.monotonic()
    try:
        done = subprocess.run(
            command + ["--small"] * small,
            capture_output=True,
            text=True,
            timeout=SECONDS[part],
            check=False,
        )
        problem = done.stderr.strip().splitlines()[-1:] if done.returncode else []
        found = {"found": json.loads(done.stdout)} if not done.returncode else {"problem": problem}
    except subprocess.TimeoutExpired:
        found = {"problem": f"took more than {SECONDS[part]} s"}
    return {"seconds": round(time.monotonic() - begin, 1), **found}


def document(device: str, small: bool) -> dict[str, Any]:
    """All parts, and what they ran on."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "host": host_environment(),
        **{part: in_process(part, device, small) for part in PARTS},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", choices=list(PARTS))
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--small", action="store_true")
    asked = parser.parse_args()
    if asked.device == "cuda" and not torch.cuda.is_available():
        sys.exit("no CUDA device: --small --device cpu tests the script itself")
    if asked.part is None:
        print(json.dumps(document(asked.device, asked.small), indent=2))
    else:
        print(json.dumps(PARTS[asked.part](asked.device, asked.small)))


if __name__ == "__main__":
    main()
