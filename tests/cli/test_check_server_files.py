"""``meshfit check`` on files that start a server: what each says, what it holds, what is better."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from meshfit.cli.main import app
from meshfit.engines.recognise import recognise_server
from meshfit.errors import InputError
from meshfit.job.engine_file import Added
from meshfit.serve.job.engine_file import served_file

FILES = Path(__file__).parent / "engine_files"
ON_H100 = ("--accelerator", "H100-SXM")


def check(path, *options):
    result = CliRunner().invoke(app, ["check", str(FILES / path), "--json", *ON_H100, *options])
    assert result.stdout, result.exception or result.stderr
    return json.loads(result.stdout), result.exit_code


def served(tmp_path, text, name="serve.sh", **added):
    path = tmp_path / name
    path.write_text(text)
    return served_file(path, Added(accelerator="H100-SXM", **added))


@pytest.mark.parametrize(
    ("name", "engine", "label", "longest", "verdict"),
    [
        ("vllm_70b.sh", "vllm", "replicas=2,tp=4", 32_000, "fits"),
        ("vllm_too_large.yaml", "vllm", "tp=2", 131_072, "does_not_fit"),
        ("sglang_deepseek.sh", "sglang", "tp=2,ep=16,attention_dp=8", 163_840, "fits"),
    ],
)
def test_a_setting_is_answered_for_the_longest_request_that_the_server_takes(
    name, engine, label, longest, verdict
):
    document, code = check(name)
    assert (document["file"]["engine"], document["label"]) == (engine, label)
    assert (document["violations"], document["unknown_options"]) == ([], [])
    assert document["verdict"] == verdict
    assert code == {"fits": 0, "does_not_fit": 1}[verdict]
    cache, memory = document["kv_cache"], document["memory"]
    assert cache["request_tokens"] == longest
    assert (cache["requests"] >= 1) == (verdict == "fits")
    assert memory["total"] == sum(
        memory[key] for key in ("weights", "kv_cache", "workspace", "communication", "unattributed")
    )


def test_the_cache_is_what_vllm_leaves_of_the_share_that_it_is_granted():
    """vLLM (gpu_worker.py): kv = total * share - weights - others; heads are shared out over tp."""
    document, _ = check("vllm_70b.sh")
    memory, cache = document["memory"], document["kv_cache"]
    others = memory["weights"] + memory["workspace"] + memory["communication"]
    pool = 0.9 * memory["capacity"] - others - memory["unattributed"]
    assert memory["kv_cache"] == pytest.approx(pool, abs=1)
    assert cache["bytes_per_token"] == 80 * 2 * (8 // 4) * 128 * 1  # fp8
    assert cache["tokens"] == 2 * (memory["kv_cache"] // (cache["bytes_per_token"] * 16)) * 16


def test_options_are_known_by_their_other_names():
    """Short ones, unique beginnings, underscores, blocks as JSON or with dots, levels of -O."""
    text = (FILES / "vllm_70b.sh").read_text()
    file = recognise_server(text).read(text)
    assert file.unknown == ()
    assert (file.tp, file.replicas, file.longest_tokens) == (4, 2, 32_000)
    assert file.budget == {
        "memory_fraction": 0.9,
        "max_sequences": 256,
        "cache_element_bytes": 1.0,
    }


@pytest.mark.parametrize(
    ("name", "found"),
    [
        (
            "vllm_misspelt.sh",
            [
                ("--tensor-paralel-size", 1, "--tensor-parallel-size"),
                (
                    "--eplb-config.num_redundant_expert",
                    1,
                    "--eplb-config.num_redundant_experts",
                ),
            ],
        ),
        ("sglang_groups.sh", [("--mem-fraction-statc", 4, "--mem-fraction-static")]),
    ],
)
def test_a_misspelt_option_is_named_with_its_line_and_the_nearest(name, found):
    document, code = check(name)
    unknown = document["unknown_options"]
    assert [(one["option"], one["line"], one["nearest"]) for one in unknown] == found
    assert (document["verdict"], code) == ("invalid", 2)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("vllm serve Qwen/Qwen3-8B more --enforce-eager true", ["more", "true"]),
        ("sglang serve --model-path Qwen/Qwen3-8B --disable-cuda-graph 1", ["1"]),
    ],
)
def test_a_word_that_no_option_takes_is_named(text, words, tmp_path):
    assert [one.name for one in served(tmp_path, text).file.unknown] == words


def test_a_misspelt_key_of_yaml_is_named_as_yaml_writes_it(tmp_path):
    text = "model: Qwen/Qwen3-8B\nmax-model-len: 4096\ntensor_paralel_size: 2\n"
    file = served(tmp_path, text, "serve.yaml").file
    assert [one.message for one in file.unknown] == [
        "line 3: unknown option tensor_paralel_size; did you mean tensor-parallel-size?"
    ]


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        (
            "vllm_dcp.sh",
            {
                "attention_heads_divisible": "--tensor-parallel-size",
                "decode_context_within_tp": "--decode-context-parallel-size",
                "decode_context_needs_copied_heads": "--decode-context-parallel-size",
                "sequence_within_positions": "--max-model-len",
                "steps_hold_every_request": "--max-num-batched-tokens",
            },
        ),
        (
            "sglang_groups.sh",
            {
                "attention_groups_within_tp": "--attention-data-parallel-size",
                "expert_groups_fill_tp": "--moe-dp-size",
            },
        ),
    ],
)
def test_every_broken_rule_is_said_in_the_words_of_the_engine(name, broken):
    document, code = check(name)
    said = {one["rule"]: one["option"] for one in document["violations"]}
    assert broken.items() <= said.items()
    assert (document["verdict"], code, document["memory"]) == ("invalid", 2, None)


@pytest.mark.parametrize("name", ["vllm_70b.sh", "vllm_too_large.yaml", "sglang_deepseek.sh"])
def test_a_proposed_file_is_whole_and_says_what_is_proposed(name, tmp_path):
    """Applied with ``patch``, every diff gives a file whose setting is the one named."""
    document, _ = check(name)
    for number, one in enumerate(document["alternatives"]):
        path = tmp_path / f"{number}-{name}"
        shutil.copy(FILES / name, path)
        patch = "\n".join(one["diff"]) + "\n"
        subprocess.run(["patch", "-s", str(path)], input=patch, text=True, check=True)
        if path.suffix == ".sh":
            subprocess.run(["bash", "-n", str(path)], check=True)
        again = served_file(path, Added(accelerator="H100-SXM"))
        assert again.file.unknown == ()
        assert again.layout.as_json() == one["layout"]
        assert again.request_tokens == one["kv_cache"]["request_tokens"]


def test_where_the_model_does_not_fit_more_accelerators_and_shorter_requests_are_proposed():
    document, _ = check("vllm_too_large.yaml")
    assert document["alternatives"]
    assert all(one["kv_cache"]["requests"] >= 1 for one in document["alternatives"])
    assert {"tp=4", "tp=8"} <= {one["label"] for one in document["alternatives"]}


def test_better_layouts_give_more_tokens_on_the_same_accelerators():
    document, _ = check("sglang_deepseek.sh")
    own = document["load"]["output_tokens_per_s"]
    for one in document["alternatives"]:
        assert one["load"]["output_tokens_per_s"] > own
        assert one["gain"] > 0


def test_sglang_starts_where_the_longest_request_does_not_go_into_the_cache(tmp_path):
    """It refuses such requests when they come; vLLM does not start."""
    text = "python -m sglang.launch_server --model-path Qwen/Qwen3-32B --mem-fraction-static 0.81"
    (tmp_path / "short.sh").write_text(text)
    document, code = check(tmp_path / "short.sh")
    assert (document["verdict"], code) == ("tight", 0)
    assert "is refused" in document["notes"][-1]


def test_a_share_that_leaves_no_room_is_tight(tmp_path):
    """vllm#57475: 0.98 passes the engine's own check and dies when graphs are captured."""
    text = "vllm serve Qwen/Qwen3-8B --gpu-memory-utilization 0.98"
    (tmp_path / "full.sh").write_text(text)
    document, _ = check(tmp_path / "full.sh")
    assert document["verdict"] == "tight"
    assert document["alternatives"][0]["options"] == {"--gpu-memory-utilization": "0.95"}


def test_replicas_of_a_mixture_of_experts_share_its_experts_in_vllm(tmp_path):
    command = "vllm serve {} --tensor-parallel-size 2 --data-parallel-size 4 {}"
    dense = served(tmp_path, command.format("Qwen/Qwen3-32B", ""))
    experts = served(tmp_path, command.format("Qwen/Qwen3-30B-A3B", "--enable-expert-parallel"))
    assert dense.layout.label == "replicas=4,tp=2"
    assert experts.layout.label == "tp=2,ep=8,attention_dp=4"


def test_what_is_known_and_not_predicted_is_said(tmp_path):
    text = "vllm serve Qwen/Qwen3-8B --speculative-config.method mtp --dtype float32 --cpu-offload-gb 4 $MORE"
    notes = served(tmp_path, text).notes
    for words in ("$MORE is not set", "--speculative-config", "--cpu-offload-gb", "float32"):
        assert any(words in note for note in notes)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("vllm serve Qwen/Qwen3-8B --tensor-parallel-size two", "line 1: --tensor-parallel-size"),
        ("vllm serve Qwen/Qwen3-8B --config more.yaml", "holds options too"),
        ("vllm serve Qwen/Qwen3-8B --max-model-len 1.5K", "did you mean 1.5k"),
        ("vllm serve Qwen/Qwen3-8B --gpu-memory-utilization 90", "no share"),
        ("vllm serve Qwen/Qwen3-8B --eplb-config '{step_interval: 3}'", "no JSON"),
        ("vllm serve --max-model-len 4096", "--model NAME"),
        ("vllm serve nobody/nothing-7b", "--model NAME says which it is like"),
        ("vllm serve a -tp 2\nvllm serve a -tp 4", "several programs"),
        ("sglang serve --model-path Qwen/Qwen3-8B --tp 0", "at least 1"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(text, said, tmp_path):
    with pytest.raises(InputError) as refused:
        served(tmp_path, text)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_what_an_engine_runs_and_a_person_should_know_is_said(tmp_path):
    (tmp_path / "wide.sh").write_text(
        "vllm serve Qwen/Qwen3-30B-A3B --tensor-parallel-size 16 --nnodes 2 --node-rank 0"
    )
    document, _ = check(tmp_path / "wide.sh")
    said = {one["rule"]: one["option"] for one in document["warnings"]}
    assert said["key_value_heads_replicated"] == "--tensor-parallel-size"
    assert "tensor_parallel_inside_domain" in said


def test_fewer_accelerators_than_the_file_takes_are_refused():
    result = CliRunner().invoke(app, ["check", str(FILES / "vllm_70b.sh"), *ON_H100, "--gpus", "4"])
    assert isinstance(result.exception, InputError)
    assert "the file takes 8 accelerators" in str(result.exception)


def test_accelerators_that_the_file_leaves_idle_are_said():
    document, _ = check("vllm_70b.sh", "--gpus", "16")
    assert "8 of 16 accelerators stay idle" in document["notes"]


def test_what_only_training_has_is_refused():
    result = CliRunner().invoke(
        app, ["check", str(FILES / "vllm_70b.sh"), *ON_H100, "--global-batch", "8"]
    )
    assert "--global-batch is for files of engines that train" in str(result.exception)


def test_the_view_says_what_the_document_says():
    result = CliRunner().invoke(app, ["check", str(FILES / "vllm_too_large.yaml"), *ON_H100])
    for words in ("does not fit", "lacking", "+tensor_parallel_size: 4"):
        assert words in result.stdout


KUBERNETES = """\
apiVersion: apps/v1
kind: Deployment
spec:
  template:
    spec:
      containers:
      - image: vllm/vllm-openai:v0.32.0
        args:
        - --model
        - meta-llama/Llama-3.1-70B-Instruct
        - --tensor-parallel-size
        - "2"
        - --max-model-len=131072
"""


def test_a_deployment_of_kubernetes_is_read_as_the_command_that_it_holds(tmp_path):
    path = tmp_path / "deployment.yaml"
    path.write_text(KUBERNETES)
    document, _ = check(path)
    assert (document["label"], document["unknown_options"]) == ("tp=2", [])
    [longest] = [one for one in document["alternatives"] if "--max-model-len" in one["options"]]
    assert longest["diff"][-2].startswith("-        - --max-model-len=131072")
    assert all(one["diff"] or one["options"] for one in document["alternatives"])


def test_the_commands_of_two_hosts_are_one_server(tmp_path):
    command = (
        "python -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3 --tp 16 --nnodes 2"
    )
    given = served(tmp_path, f"{command} --node-rank 0\n{command} --node-rank 1\n")
    assert (given.file.num_ranks, given.file.hosts, given.file.unknown) == (16, 2, ())
