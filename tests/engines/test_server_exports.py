"""What is written for an engine that serves says the same layout when it is read back."""

import os
import subprocess
from dataclasses import replace

import pytest

from meshfit.cluster.shorthand import read_shorthand
from meshfit.engines import engine_profile
from meshfit.engines.exports import SERVER_EXPORTS
from meshfit.engines.server_handover import ServerHandover
from meshfit.errors import InputError
from meshfit.job.engine_file import Added
from meshfit.serve.job.engine_file import served_file
from meshfit.serve.setting.layout import ServingLayout
from meshfit.serve.setting.space import serving_space
from meshfit.workload.models import read_model, repository_of

MODELS = ("llama-3.1-8b", "qwen3-30b-a3b", "deepseek-v3")
CLUSTER = read_shorthand("2x8 H100-SXM")


def handover(engine, model, layout, **more):
    return ServerHandover(
        layout=layout,
        label=layout.label,
        accelerators=layout.num_accelerators,
        model=repository_of(model),
        has_experts=read_model(model).moe is not None,
        profile=engine_profile(engine),
        gpus_per_host=8,
        prediction="No prediction.",
        **more,
    )


def read_back(tmp_path, files):
    path = tmp_path / "serve.sh"
    path.write_text(files["serve.sh"])
    return served_file(path, Added(accelerator="H100-SXM"))


@pytest.mark.parametrize("accelerators", [8, 16])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("engine", SERVER_EXPORTS)
def test_layouts_come_back_as_they_were(engine, model, accelerators, tmp_path):
    profile, written = engine_profile(engine), 0
    for layout in serving_space(read_model(model), profile, CLUSTER, accelerators).layouts:
        try:
            files = SERVER_EXPORTS[engine](handover(engine, model, layout))
        except InputError:
            continue
        written += 1
        again = read_back(tmp_path, files)
        assert again.file.unknown == ()  # what the header calls "names checked"
        assert again.layout == layout
        assert again.file.hosts == accelerators // 8
        assert again.topology.num_accelerators == accelerators
    assert written >= 4


@pytest.mark.parametrize("engine", SERVER_EXPORTS)
def test_budgets_come_back_as_they_were(engine, tmp_path):
    given = handover(
        engine,
        "llama-3.1-8b",
        ServingLayout(tp=2),
        memory_fraction=0.85,
        step_tokens=4096,
        max_sequences=64,
        quantization="fp8",
        has_small_cache=True,
        longest_tokens=32768,
    )
    again = read_back(tmp_path, SERVER_EXPORTS[engine](given))
    budget = again.budget
    assert (budget.memory_fraction, budget.step_tokens, budget.max_sequences) == (0.85, 4096, 64)
    assert (budget.cache_element_bytes, again.request_tokens) == (1.0, 32768)
    assert again.file.weights == "fp8"


@pytest.mark.parametrize("engine", SERVER_EXPORTS)
@pytest.mark.parametrize("layout", [ServingLayout(tp=4), ServingLayout(tp=8, pp=2)])
def test_scripts_are_scripts_and_name_layout_release_and_status(engine, layout, tmp_path):
    profile = engine_profile(engine)
    text = SERVER_EXPORTS[engine](handover(engine, "llama-3.1-8b", layout))["serve.sh"]
    (tmp_path / "serve.sh").write_text(text)
    subprocess.run(["bash", "-n", str(tmp_path / "serve.sh")], check=True)
    for words in (layout.label, f"{profile.name} {profile.version}", "Status: names checked"):
        assert words in text


ODD = "a \"b\" }$(touch pwned)`touch pwned`\ntouch pwned'c' é\\"


@pytest.mark.parametrize("engine", SERVER_EXPORTS)
def test_a_model_of_any_name_is_one_word_of_the_command(engine, tmp_path):
    given = replace(
        handover(engine, "llama-3.1-8b", ServingLayout(tp=8, pp=2)), model=ODD, notes=(ODD,)
    )
    text = SERVER_EXPORTS[engine](given)["serve.sh"]
    (tmp_path / "serve.sh").write_text(text)
    for name in ("vllm", "python3"):
        (tmp_path / name).write_text('#!/bin/bash\nprintf "%s\\0" "$@"\n')
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = ["bash", "serve.sh", "more"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    words = done.stdout.split("\0")
    assert ODD in words
    assert words[-2] == "more"
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize(
    ("engine", "model", "layout", "said"),
    [
        ("vllm", "qwen3-30b-a3b", ServingLayout(replicas=2, tp=4), "servers of their own"),
        ("vllm", "qwen3-30b-a3b", ServingLayout(tp=8, ep=4), "all 8 ranks of a stage or none"),
        ("vllm", "llama-3.1-8b", ServingLayout(tp=4, attention_dp=2), "mixtures of experts alone"),
        ("sglang", "qwen3-30b-a3b", ServingLayout(replicas=2, attention_dp=4), "either"),
        ("sglang", "llama-3.1-8b", ServingLayout(replicas=2, tp=8), "on one host"),
        ("vllm", "llama-3.1-8b", ServingLayout(replicas=3, tp=3), "evenly"),
    ],
)
def test_what_no_option_says_is_refused_and_not_left_out(engine, model, layout, said):
    with pytest.raises(InputError, match=said):
        SERVER_EXPORTS[engine](handover(engine, model, layout))
