"""Our rules and the engines' own checks on a few random layouts; docs/engine-agreement.md has more."""

import os
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.engines

ROOT = Path(__file__).parents[3]
LAYOUTS = 40


def test_rules_refuse_what_engines_refuse_and_nothing_else():
    python, megatron = os.environ["MESHFIT_ENGINE_PYTHON"], os.environ["MESHFIT_MEGATRON_CORE"]
    words = ["--megatron", megatron, "--layouts", str(LAYOUTS)]
    done = subprocess.run(
        [python, "-W", "ignore", ROOT / "tools/engine_agreement.py", *words],
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    rows = [line.split("|")[1:-1] for line in done.stdout.splitlines() if line.startswith("| ")]
    counts = {cells[0].split()[0]: cells[1:] for cells in rows[2:5]}
    assert set(counts) == {"megatron", "deepspeed", "accelerate"}
    for total, *_, apart in counts.values():
        assert int(total) == LAYOUTS
        assert int(apart) == 0, done.stdout
