import sys
from pathlib import Path

import pytest

from meshfit.errors import InputError
from meshfit.serve.layout import ServingLayout
from meshfit.serve.servers.commands import server_command
from meshfit.serve.simulate.scheduler import SchedulerSpec

SCHEDULER = SchedulerSpec(max_sequences=8, token_budget=512, kv_capacity_tokens=1600)


def command(kind, layout, **options):
    return server_command(kind, Path("/models/tiny"), layout, SCHEDULER, port=8001, **options)


def test_transformers_is_served_by_our_own_process():
    found = command("transformers", ServingLayout(replicas=2))
    assert found.argv[:4] == (sys.executable, "-m", "meshfit.run.serving", "/models/tiny")
    assert "--port=8001" in found.argv
    assert found.name == "tiny"


def test_transformers_serves_no_layout_that_cuts_the_model():
    with pytest.raises(InputError, match="one rank a replica, but tp=2 has 2; write replicas=2"):
        command("transformers", ServingLayout(tp=2))


def test_vllm_is_told_layout_and_limits():
    found = command("vllm-cpu", ServingLayout(tp=2), vllm_python="/venv/bin/python")
    options = dict(zip(found.argv, found.argv[1:], strict=False))
    assert found.argv[0] == "/venv/bin/python"
    assert options["--tensor-parallel-size"] == "2"
    assert options["--max-num-seqs"] == "8"
    assert options["--max-num-batched-tokens"] == "512"
    assert options["--num-gpu-blocks-override"] == "100"
    assert found.environment["VLLM_CPU_OMP_THREADS_BIND"] == "nobind"


def test_vllm_without_an_environment_says_which_variable_names_it():
    with pytest.raises(InputError, match="set MESHFIT_VLLM_PYTHON"):
        command("vllm-cpu", ServingLayout())
