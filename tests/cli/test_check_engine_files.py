"""``meshfit check`` on files that engines read: what each says, what is wrong with it, what is better."""

import ast
import json
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from meshfit.cli.main import app
from meshfit.engines.options import option_table
from meshfit.errors import InputError
from meshfit.job.engine_file import Added, job_of_engine_file

FILES = Path(__file__).parent / "engine_files"
ON_H100 = ("--accelerator", "H100-SXM")
LLAMA_8B = ("--model", "llama-3.1-8b", "--sequence-length", "4096")


def check(name, *options):
    result = CliRunner().invoke(app, ["check", str(FILES / name), "--json", *options])
    assert result.stdout, result.stderr
    return json.loads(result.stdout), result.exit_code


@pytest.mark.parametrize(
    ("name", "options", "engine", "label"),
    [
        ("llama_70b.sh", (), "megatron", "dp_shard=2,tp=8,pp=2,zero_stage=1,recompute=selective"),
        ("moe.sh", (), "megatron", "dp_shard=16,tp=2,pp=2,ep=8,zero_stage=1"),
        (
            "llama3_70b.toml",
            ("--gpus", "64"),
            "torchtitan",
            "dp_shard=8,tp=8,zero_stage=3,micro_batch_size=8,recompute=full",
        ),
        (
            "titan.py",
            ("--gpus", "16"),
            "torchtitan",
            "dp_shard=4,tp=4,zero_stage=3,micro_batch_size=2,recompute=operations",
        ),
        ("zero3.json", ("--gpus", "16", *LLAMA_8B), "deepspeed", "dp_shard=16,zero_stage=3"),
        ("fsdp2_tp2.yaml", LLAMA_8B, "accelerate", "dp_shard=4,tp=2,zero_stage=3,sp=false"),
        (
            "megatron.yaml",
            ("--gpus", "32"),
            "megatron",
            "dp_shard=4,tp=4,pp=2,zero_stage=1,recompute=selective",
        ),
        (
            "bridge_70b.sh",
            ("--sequence-length", "8192"),
            "megatron",
            "dp_shard=4,tp=8,pp=2,zero_stage=1",
        ),
        (
            "bridge.yaml",
            ("--gpus", "8", "--model", "llama-3.1-8b"),
            "megatron",
            "dp_shard=4,tp=2,zero_stage=1",
        ),
    ],
)
def test_a_file_is_told_by_what_is_in_it_and_its_setting_is_answered(name, options, engine, label):
    document, code = check(name, *ON_H100, *options)
    assert (document["file"]["engine"], document["label"]) == (engine, label)
    assert document["unknown_options"] == []
    assert document["violations"] == []
    assert document["memory"]["stages"]
    assert document["time"]["step"] > 0
    assert code == {"fits": 0, "tight": 0, "does_not_fit": 1}[document["verdict"]]


@pytest.mark.parametrize(
    ("name", "options", "line", "option", "nearest"),
    [
        ("llama_70b_misspelt.sh", (), 33, "--sequence-paralel", "--sequence-parallel"),
        (
            "llama3_70b_misspelt.toml",
            ("--gpus", "64"),
            14,
            "parallelism.context_paralel_degree",
            "parallelism.context_parallel_degree",
        ),
        (
            "zero2_misspelt.json",
            ("--gpus", "16", *LLAMA_8B),
            5,
            "zero_optimisation",
            "zero_optimization",
        ),
        (
            "bridge_misspelt.py",
            ("--gpus", "8"),
            9,
            "model.context_parallel_sizes",
            "model.context_parallel_size",
        ),
        (
            "fsdp2_misspelt.yaml",
            LLAMA_8B,
            13,
            "parallelism_config.parallelism_config_ttp_size",
            "parallelism_config.parallelism_config_tp_size",
        ),
    ],
)
def test_a_misspelt_option_is_named_with_its_line_and_the_nearest(
    name, options, line, option, nearest
):
    document, code = check(name, *ON_H100, *options)
    first = document["unknown_options"][0]
    assert (first["line"], first["option"], first["nearest"]) == (line, option, nearest)
    assert (document["verdict"], code) == ("invalid", 2)


@pytest.mark.parametrize(
    ("engine", "names"),
    [
        (
            "deepspeed",
            "scheduler flops_profiler tensorboard wandb csv_monitor aio communication_data_type "
            "data_efficiency comms_logger steps_per_print bfloat16",
        ),
        (
            "accelerate",
            "deepspeed_config.zero_stage deepspeed_config.offload_param_device "
            "deepspeed_config.zero3_init_flag deepspeed_config.deepspeed_config_file "
            "dynamo_config.dynamo_backend fp8_config.backend fsdp_config.sharding_strategy "
            "megatron_lm_config.megatron_lm_tp_degree mpirun_config.mpirun_hostfile downcast_bf16",
        ),
    ],
)
def test_options_of_documents_and_of_the_engines_own_questions_are_known(engine, names):
    assert set(names.split()) <= set(option_table(engine).values)


def test_every_broken_rule_is_said_in_the_words_of_the_engine():
    document, code = check("titan_tp3.py", *ON_H100, "--gpus", "8")
    broken = {one["rule"]: one["option"] for one in document["violations"]}
    assert {"attention_heads_divisible", "key_value_heads_divisible", "world_size"} <= set(broken)
    assert broken["attention_heads_divisible"] == "parallelism.tensor_parallel_degree"
    assert (document["verdict"], code) == ("invalid", 2)


def test_rules_name_the_fields_of_the_file_that_is_read():
    """One set of rules, three ways to write Megatron-Core's options."""
    document, _ = check("bridge_misspelt.py", *ON_H100, "--gpus", "8")
    broken = {one["rule"]: one["option"] for one in document["violations"]}
    assert broken["attention_heads_divisible"] == "model.tensor_model_parallel_size"


def test_experts_that_ranks_cannot_share_are_refused_in_the_words_of_megatron():
    document, code = check("moe_experts_uneven.sh", *ON_H100)
    said = {one["rule"]: one for one in document["violations"]}
    assert said["experts_divisible"]["option"] == "--expert-model-parallel-size"
    assert 8 in said["experts_divisible"]["nearest"] or 32 in said["experts_divisible"]["nearest"]
    assert code == 2


def test_what_a_script_leaves_out_means_what_megatron_takes_it_for(tmp_path):
    script = tmp_path / "small.sh"
    script.write_text(
        "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 24 --hidden-size 1024 "
        "--num-attention-heads 16 --seq-length 1024 --micro-batch-size 4 --fp16\n"
    )
    document, _ = check(script, *ON_H100)
    assert document["label"] == "dp_replicate=8,micro_batch_size=4"  # no distributed optimizer
    assert document["violations"] == []


@pytest.mark.parametrize(
    ("name", "options", "parse"),
    [
        ("llama_70b.sh", (), lambda text, path: subprocess.run(["bash", "-n", path], check=True)),
        ("llama3_70b.toml", ("--gpus", "64"), lambda text, path: tomllib.loads(text)),
        ("zero2_misspelt.json", ("--gpus", "16", *LLAMA_8B), lambda text, path: json.loads(text)),
        ("fsdp2_tp2.yaml", LLAMA_8B, lambda text, path: yaml.safe_load(text)),
        ("megatron.yaml", ("--gpus", "32"), lambda text, path: yaml.safe_load(text)),
        (
            "bridge_70b.sh",
            ("--sequence-length", "8192"),
            lambda text, path: subprocess.run(["bash", "-n", path], check=True),
        ),
        (
            "bridge.yaml",
            ("--gpus", "8", "--model", "llama-3.1-8b"),
            lambda text, path: yaml.safe_load(text),
        ),
    ],
)
def test_a_proposed_file_is_whole_and_says_the_proposed_layout(name, options, parse, tmp_path):
    """Applied with ``patch``, every diff gives a file that parses and whose layout is the one named."""
    document, _ = check(name, *ON_H100, *options)
    changed = [one for one in document["alternatives"] if one["diff"]]
    assert changed or document["verdict"] == "fits"
    for number, one in enumerate(changed):
        path = tmp_path / f"{number}-{name}"
        shutil.copy(FILES / name, path)
        patch = "\n".join(one["diff"]) + "\n"
        subprocess.run(["patch", "-s", str(path)], input=patch, text=True, check=True)
        parse(path.read_text(), path)
        added = Added(accelerator="H100-SXM", **_added(options))
        assert job_of_engine_file(path, added).job.layout.label == one["label"]


def _added(options):
    """Options of the command as what a person adds."""
    names = [name.removeprefix("--").replace("-", "_") for name in options[::2]]
    values = [int(value) if value.isdigit() else value for value in options[1::2]]
    return dict(zip(names, values, strict=True))


def test_better_ones_are_faster_or_fit_where_the_files_own_does_not():
    document, _ = check("llama_70b.sh", *ON_H100)
    own = document["interval"]["step_time"]["middle"]
    assert document["alternatives"]
    for one in document["alternatives"]:
        assert one["memory"]["high"] <= 0.9 * document["memory"]["capacity"]
        assert document["verdict"] != "fits" or one["step_time"]["middle"] < own


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("zero3.json", ("--gpus", "8"), "--model"),
        ("zero3.json", ("--gpus", "8", "--model", "llama-3.1-8b"), "--sequence-length"),
        ("zero3.json", ON_H100, "--gpus"),
        ("llama_70b.sh", (), "--accelerator"),
    ],
)
def test_what_the_file_does_not_say_is_asked_for(name, options, said):
    result = CliRunner().invoke(app, ["check", str(FILES / name), *options])
    assert isinstance(result.exception, InputError)
    assert said in str(result.exception)


def test_a_job_takes_none_of_the_options_of_an_engines_file(tmp_path):
    job = tmp_path / "job.yaml"
    job.write_text(
        "schema_version: 1\nmodel: llama-3.1-8b\nworkload: {sequence_length: 128, global_batch: 8}\n"
        "cluster: 1x8 H100-SXM\nlayout: {dp_shard: 8}\n"
    )
    result = CliRunner().invoke(app, ["check", str(job), "--gpus", "8"])
    assert isinstance(result.exception, InputError)
    assert "--gpus is for a file of an engine" in str(result.exception)


@pytest.mark.parametrize("text", ["", "from vllm import LLM\n", "[parallelism\n"])
def test_a_file_that_is_none_of_an_engine_is_said_to_be_none(text, tmp_path):
    path = tmp_path / "file.txt"
    path.write_text(text)
    result = CliRunner().invoke(app, ["check", str(path), *ON_H100])
    assert isinstance(result.exception, InputError)
    assert "is none that is known" in str(result.exception)
    assert "a JSON file of DeepSpeed" in str(result.exception)


def test_a_value_that_the_engine_does_not_have_is_a_broken_rule(tmp_path):
    path = tmp_path / "titan.toml"
    path.write_text(
        "[training]\nseq_len = 4096\n[parallelism]\npipeline_parallel_degree = 2\n"
        'pipeline_parallel_schedule = "1F1C"\n'
    )
    document, _ = check(path, *ON_H100, "--gpus", "8", "--model", "llama-3.1-8b")
    assert "schedule_known" in [one["rule"] for one in document["violations"]]
    assert document["alternatives"] == []


def test_json_in_one_line_has_the_same_proposals(tmp_path):
    document, _ = check("zero3.json", *ON_H100, "--gpus", "16", *LLAMA_8B)
    one_line = tmp_path / "one_line.json"
    one_line.write_text(json.dumps(json.loads((FILES / "zero3.json").read_text())))
    same, _ = check(one_line, *ON_H100, "--gpus", "16", *LLAMA_8B)
    assert [one["label"] for one in same["alternatives"]] == [
        one["label"] for one in document["alternatives"]
    ]
    assert all(one["diff"] for one in same["alternatives"])


def test_a_python_file_is_read_and_never_run(tmp_path):
    path = tmp_path / "cand.py"
    path.write_text(
        "from torchtitan.models.llama3.config_registry import llama3_8b\n"
        f"open({str(tmp_path / 'was-run')!r}, 'w')\n"
        "def cand():\n    config = llama3_8b()\n    config.training.seq_len = 4 * 1024\n"
        "    return config\n"
    )
    ast.parse(path.read_text())
    document, _ = check(path, *ON_H100, "--gpus", "8")
    assert document["label"] == "dp_shard=8,zero_stage=3,recompute=operations"
    assert not (tmp_path / "was-run").exists()


def test_what_the_file_sets_beside_the_layout_holds_for_what_is_proposed(tmp_path):
    """With one connection Megatron refuses sharded parameters; without that line it takes them, with
    checkpoints that such parameters need."""
    with_one, _ = check("llama_70b.sh", *ON_H100)
    assert with_one["alternatives"]
    assert all("--use-megatron-fsdp" not in one["options"] for one in with_one["alternatives"])
    text = (FILES / "llama_70b.sh").read_text()
    free = tmp_path / "free.sh"
    free.write_text(text.replace("export CUDA_DEVICE_MAX_CONNECTIONS=1\n", ""))
    without, _ = check(free, *ON_H100, "--layout", "micro_batch_size=1,tp=1,pp=1,sp=false")
    sharded = [one for one in without["alternatives"] if "--use-megatron-fsdp" in one["options"]]
    assert sharded
    assert all(one["options"]["--ckpt-format"] == "fsdp_dtensor" for one in sharded)
