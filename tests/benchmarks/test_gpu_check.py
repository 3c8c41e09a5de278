"""What of ``benchmarks/gpu/check.sh`` needs no GPU."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_parts_leave_room_in_eight_minutes() -> None:
    from benchmarks.gpu.check import PARTS, SECONDS

    assert set(PARTS) == set(SECONDS)
    assert sum(SECONDS.values()) <= 440


def test_twelve_configurations_go_from_the_smallest_to_the_largest() -> None:
    from benchmarks.gpu.check import memory_points

    points = memory_points(small=False)
    tokens = [point["sequence_length"] * point["micro_batch_size"] for point in points]
    assert len({tuple(point.items()) for point in points}) == 12
    assert tokens == sorted(tokens)


@pytest.mark.parametrize("causal", [True, False])
def test_a_block_of_ring_attention_is_held_against_attention_in_fp64(causal: bool) -> None:
    import torch
    from benchmarks.gpu.check import block_error

    row = block_error("cpu", torch.float32, causal, 32)
    errors = [value for value in row.values() if isinstance(value, float)]
    assert len(errors) == 4
    assert max(errors) < 1e-5


def test_a_part_that_fails_leaves_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.gpu import check

    monkeypatch.setattr(check.sys, "executable", "/bin/false")
    assert "problem" in check.in_process("ring", "cpu", True)


def test_the_script_is_runnable_as_it_lies() -> None:
    script = ROOT / "benchmarks" / "gpu" / "check.sh"
    assert script.stat().st_mode & 0o111
    subprocess.run(["bash", "-n", str(script)], check=True)
