"""What each engine's file says, and which ones are refused in one line, as the engine would or because
only a run could tell."""

import json

import pytest

from meshfit.engines.megatron_bridge.recipes import recipes
from meshfit.engines.options import option_table
from meshfit.engines.recognise import recognise
from meshfit.errors import InputError

MEGATRON = (
    "torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --num-layers 32 --hidden-size 4096 "
    "--num-attention-heads 32 --seq-length 4096 --micro-batch-size 1 --bf16 "
)
FSDP1 = "distributed_type: FSDP\nnum_processes: 16\nnum_machines: 2\nmixed_precision: bf16\nfsdp_config:\n"
FSDP2 = f"{FSDP1}  fsdp_version: 2\nparallelism_config:\n"
DEEPSPEED = "distributed_type: DEEPSPEED\nnum_processes: 16\ndeepspeed_config:\n  zero_stage: 1\n"
TOML = "[training]\nseq_len = 4096\n[parallelism]\n"


def read(text, ranks=16):
    return recognise(text).read(text, ranks)


def deepspeed(**keys):
    return json.dumps({"bf16": {"enabled": True}, **keys})


def titan(*lines, base="llama3_8b()", before=""):
    body = "".join(f"    {line}\n" for line in lines)
    return (
        f"from torchtitan.trainer import Trainer\n{before}\ndef cand():\n    config = {base}\n{body}"
        f"    return config\n"
    )


def sizes(**axes):
    return FSDP2 + "".join(f"  parallelism_config_{a}_size: {n}\n" for a, n in axes.items())


BRIDGE = "torchrun --nproc-per-node 16 run_recipe.py --recipe llama31_8b_pretrain_config "
YAML = (
    "language_model:\n  num_layers: 32\n  hidden_size: 4096\n  num_attention_heads: 32\n"
    "model_parallel:\n  bf16: True\n"
)
TUNE = "def tune(*args, **keys):\n    pass\n"
TP = "config.parallelism.tensor_parallel_degree"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (MEGATRON + "--tensor-model-parallel-size 0", "--tensor-model-parallel-size 0"),
        (MEGATRON + "--tensor-model-parallel-size -8", "at least 1"),
        (MEGATRON + "--tensor-model-parallel-size $1", "write the number itself"),
        (MEGATRON + "--normalization RMSnorm", "none of LayerNorm, RMSNorm"),
        (MEGATRON + "--fp16", "--bf16 and --fp16"),
        (MEGATRON + "--fp8-format hybrid --fp8-recipe none", "--fp8-recipe"),
        (MEGATRON + "--recompute-granularity ful", "none of full, selective"),
        (MEGATRON + "--num-layers-per-virtual-pipeline-stage 5", "does not divide"),
        (MEGATRON + "--pipeline-model-parallel-layout '((t*9999)*9999)*9999'", "write it like"),
        (
            MEGATRON + "--use-distributed-optimizer --num-distributed-optimizer-instances 3",
            "does not divide the 16",
        ),
        (titan(f"{TP} = 0"), "at least 1"),
        (titan("config.parallelism.data_parallel_shard_degree = 0"), "-1 or at least 1"),
        (titan("if BIG:", f"    {TP} = 4"), "line 6"),
        (titan("tune(config)", before=TUNE), "line 7: tune(config) may set fields"),
        (titan("tune(4, block=config.parallelism)", before=TUNE), "may set fields"),
        (titan("p = config.parallelism", "p.tensor_parallel_degree = 4"), "line 6"),
        (titan(f"{TP} *= 2"), "set otherwise"),
        (titan("config = replace(config, parallelism=x)"), "made twice"),
        (titan(f"{TP} = int(os.environ['TP'])"), "no whole number; write the number itself"),
        (titan("config.activation_checkpoint = MemoryBudgetAC.Config()"), "not predicted"),
        (titan("config.training.mixed_precision_param = 'float16'"), "bfloat16, float32"),
        (
            titan(
                "config.parallelism.pipeline_parallel_degree = 2",
                "config.parallelism.pipeline_parallel_microbatch_size = 2",
                base="llama3_8b(training=TrainingConfig(local_batch_size=3))",
            ),
            "no multiple",
        ),
        (TOML + "[activation_checkpoint]\nmode = 'foo'", "not predicted"),
        (TOML + "a = " + "[" * 5000, "too deep"),
        (deepspeed(zero_optimization={"stage": 2}), "must be set"),
        (deepspeed(train_batch_size=63), "no multiple of 16"),
        (deepspeed(train_batch_size=64, fp16={"enabled": True}), "both enabled"),
        (deepspeed(train_batch_size=64, zero_optimization=[1]), "must be a block"),
        (deepspeed(train_batch_size=64, zero_optimization={"stage": "auto"}), "auto"),
        (
            deepspeed(train_batch_size=64, zero_optimization={"offload_param": {"device": "gpu"}}),
            "none of none, cpu, nvme",
        ),
        (deepspeed(train_batch_size=64, tensor_parallel={"autotp_size": -2}), "at least 0"),
        ('{"train_batch_size": 64, // all\n', "line 1: no JSON"),
        (deepspeed(train_batch_size=64, zero_optimization={"stage": 5}), "stage 5 is none of 0, 1"),
        (
            deepspeed(train_batch_size=64, optimizer={"type": "Lamb"}),
            "'lamb' is not predicted; adam",
        ),
        (MEGATRON + "--optimizer lion", "--optimizer 'lion' is not predicted; adam"),
        ("args = ['--num-layers', '32', '--bf16']", "in no command or list"),
        ('{"train_batch_size": 64, "a": ' + '{"a":' * 3000 + "1" + "}" * 3001, "too deep"),
        (BRIDGE + "model.tensor_model_parallel_size=0", "model.tensor_model_parallel_size 0"),
        (
            BRIDGE + "model.recompute_granularity=ful",
            "model.recompute_granularity 'ful' is none of",
        ),
        (
            YAML + "  tensor_model_parallel_size: 0",
            "line 7: model_parallel.tensor_model_parallel_size",
        ),
        (YAML + "micro_batch_size: {}\nmodel_parallel: 3", "stands in line 5 already"),
        ("distributed_type: FSPD\nnum_processes: 4\n", "none of NO, MULTI_GPU"),
        ("distributed_type: NO\nnum_processes: 4\n", "runs one process"),
        ("distributed_type: MULTI_GPU\nmixed_precision: fp4\n", "none of no, bf16"),
        ("distributed_type: MULTI_GPU\ndebug: 2026-99-99\n", "line 2: month"),
        ("distributed_type: MULTI_GPU\ndebug: &a [*a]\n", "line 2"),
        ("distributed_type: MULTI_GPU\n? [a]\n: 1\n", "line 2"),
        ("distributed_type: MULTI_XPU\nnum_processes: 4\n", "is not predicted; NO, MULTI_GPU"),
        ("distributed_type: FSDP\ncompute_environment: AMAZON_SAGEMAKER\n", "not predicted; LOCAL"),
        ("distributed_type: FSDP\nuse_cpu: true\n", "line 2: use_cpu true trains on CPU"),
        (
            DEEPSPEED.replace("zero_stage: 1", "zero_stage: 4"),
            "line 4: deepspeed_config.zero_stage 4",
        ),
        (FSDP1 + "  fsdp_sharding_strategy: FULL\n", "none of FULL_SHARD"),
        (FSDP1 + "  fsdp_version: 2\n  fsdp_reshard_after_forward: FULL_SHARD\n", "true or false"),
        (FSDP1 + "parallelism_config:\n  parallelism_config_tp_size: 2\n", "fsdp_version 2"),
        (sizes(cp=2, sp=2), "exclude each other"),
        (sizes(tp=0), "at least 1"),
        (DEEPSPEED.replace("zero_stage: 1", "deepspeed_config_file: ds.json"), "check that file"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(text, said):
    with pytest.raises(InputError) as refused:
        read(text)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 250


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (MEGATRON + "--optimizer-cpu-offload", {"offload": "cpu"}),
        (titan(), {"recompute": "operations", "micro_batch_size": 1}),
        (titan(base="llama3_70b()"), {"tp": 8, "recompute": "full", "micro_batch_size": 8}),
        (titan("config.activation_checkpoint = None"), {"recompute": "none"}),
        (titan(f"{TP} = 2 * N", before="N = 2"), {"tp": 4}),
        (titan(base="replace(llama3_8b(), parallelism=P(tensor_parallel_degree=4))"), {"tp": 4}),
        (
            "from torchtitan.trainer import Trainer\ndef f():\n    return Trainer.Config("
            "parallelism=ParallelismConfig(tensor_parallel_degree=2, pipeline_parallel_degree=2))",
            {"tp": 2, "pp": 2, "dp_shard": 4, "micro_batch_size": 1},
        ),
        (
            titan(
                "return replace(config, parallelism=replace(config.parallelism, "
                "tensor_parallel_degree=4))"
            )
            .replace("config = ", "base = ")
            .replace("(config", "(base"),
            {"tp": 4, "recompute": "operations", "micro_batch_size": 1},
        ),
        (
            MEGATRON + "--rampup-batch-size 16 16 5859375 --tensor-model-parallel-size 4",
            {"tp": 4},
        ),
        (deepspeed(train_batch_size=64), {"micro_batch_size": 4}),
        (
            deepspeed(
                train_batch_size=64,
                zero_optimization={"stage": 1, "offload_param": {"device": "cpu"}},
            ),
            {"offload": None},
        ),
        (deepspeed(train_batch_size=64, gradient_accumulation_steps=2), {"micro_batch_size": 2}),
        (
            deepspeed(train_batch_size=64, zero_optimization={"stage": 1, "cpu_offload": True}),
            {"offload": "cpu"},
        ),
        (BRIDGE, {"tp": 1, "cp": 2, "dp_shard": 8, "zero_stage": 1, "micro_batch_size": 1}),
        (BRIDGE + "+model.context_parallel_size=null", {"cp": 1, "dp_shard": 16}),
        (BRIDGE + "ddp.use_distributed_optimizer=false", {"zero_stage": 0, "dp_replicate": 8}),
        (
            BRIDGE + "model.pipeline_model_parallel_size=2 "
            "'model.pipeline_model_parallel_layout=[[embedding,decoder],[decoder,decoder,loss]]'",
            {"stage_layers": [1, 2]},
        ),
        (
            YAML + "  sequence_parallel: False\n  tensor_model_parallel_size: 2",
            {"sp": False, "tp": 2},
        ),
        (YAML + "  virtual_pipeline_model_parallel_size: 2", {"vpp": 1}),
        (YAML + "use_distributed_optimizer: True", {"zero_stage": 1, "dp_shard": 16}),
        (DEEPSPEED, {"zero_stage": 1, "dp_shard": 16, "dp_replicate": 1}),
        (
            FSDP1 + "  fsdp_sharding_strategy: HYBRID_SHARD\n",
            {"dp_replicate": 2, "dp_shard": 8, "zero_stage": 3},
        ),
        (FSDP1 + "  fsdp_reshard_after_forward: SHARD_GRAD_OP\n", {"zero_stage": 2}),
        (FSDP1 + "  sharding_strategy: NO_SHARD\n", {"dp_replicate": 16, "dp_shard": 1}),
        (sizes(tp=2), {"tp": 2, "dp_shard": 1, "dp_replicate": 1}),
    ],
)
def test_a_file_says_what_its_engine_takes_it_for(text, expected):
    layout = read(text).layout
    assert {key: layout.get(key) for key in expected} == expected


def test_what_hugging_face_fills_in_is_said():
    found = read(
        json.dumps(
            {
                "train_batch_size": "auto",
                "train_micro_batch_size_per_gpu": "auto",
                "gradient_accumulation_steps": 4,
                "bf16": {"enabled": "auto"},
                "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": "auto"}},
                "zero_optimization": {"stage": 3, "zero_hpz_partition_size": 8},
            }
        )
    )
    assert found.unknown == ()
    assert (found.workload["precision"], found.accumulation) == ("bf16_mixed", 4)
    assert len(found.notes) == 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (deepspeed(train_batch_size=64, pipeline={"stages": 4}), "pipeline is not in this answer"),
        (
            deepspeed(
                train_batch_size=64, zero_optimization={"offload_optimizer": {"device": "cpu"}}
            ),
            "offload_optimizer.device cpu does nothing at stage 0; from 1 on it does",
        ),
        (
            deepspeed(train_batch_size=64, tensor_parallel={"tp": {"tp_size": 4}}),
            "tensor_parallel.tp.tp_size does nothing without autotp_size",
        ),
        (deepspeed(train_batch_size=64, activation_checkpointing={}), "--layout recompute=full"),
        ('{"train_batch_size": 64, // all\n "steps_per_print": 9,}', "DeepSpeed reads it even so"),
        (
            FSDP1 + "  fsdp_version: 2\n  fsdp_sharding_strategy: NO_SHARD\n",
            "line 7: fsdp_sharding_strategy NO_SHARD does nothing under fsdp_version 2",
        ),
        (DEEPSPEED + "  gradient_accumulation_steps: auto\n", "is auto: 1, or --global-batch"),
    ],
)
def test_what_does_nothing_or_is_not_predicted_is_said(text, said):
    assert any(said in note for note in read(text).notes)


def test_accelerate_hands_the_model_to_the_compiler_where_a_backend_is_named():
    assert read(FSDP1 + "dynamo_config:\n  dynamo_backend: INDUCTOR\n").runtime == {"compile": True}
    assert read(FSDP1 + "dynamo_config:\n  dynamo_backend: 'NO'\n").runtime == {}


@pytest.mark.parametrize(
    ("text", "ranks", "expected"),
    [
        (MEGATRON, None, (16, 2)),
        (MEGATRON.replace("--nnodes 2", "--nnodes 4"), 32, (32, 4)),
        (MEGATRON, 64, (64, None)),
        (FSDP1.replace("num_machines: 2", "num_machines: 4"), None, (16, 4)),
        (FSDP1, 32, (32, None)),
        (
            "#SBATCH --nodes=4\n#SBATCH --ntasks-per-node=4\nsrun "
            + MEGATRON.partition("--nnodes 2 ")[2],
            None,
            (16, 4),
        ),
        (
            "#SBATCH --nodes=2\n#SBATCH --gpus-per-node=8\n"
            + MEGATRON.replace(
                "--nproc_per_node 8 --nnodes 2", "--nproc_per_node gpu --nnodes $SLURM_NNODES"
            ),
            None,
            (16, 2),
        ),
    ],
)
def test_ranks_and_hosts_are_those_that_the_file_starts(text, ranks, expected):
    found = read(text, ranks)
    assert (found.num_ranks, found.num_hosts) == expected


def test_an_option_that_stands_in_another_block_is_told_where():
    [found] = read("[training]\nseq_len = 4096\ntensor_parallel_degree = 8\n").unknown
    assert found.nearest == "parallelism.tensor_parallel_degree"


def test_a_misspelt_block_is_one_unknown_option():
    found = read(
        titan("config.parallelisms.tensor_parallel_degree = 4", "config.parallelisms.x = 1")
    )
    assert [(one.name, one.nearest, one.line) for one in found.unknown] == [
        ("parallelisms", "parallelism", 5)
    ]


def test_options_of_launchers_and_other_commands_are_not_megatrons():
    found = read(f"nvidia-smi --query-gpu=name\nsrun --container-image=x --gpus 8 {MEGATRON}")
    assert (found.unknown, found.num_ranks) == ((), 16)
    found = read(MEGATRON.replace("--nnodes", "--nnode"))
    assert [one.name for one in found.unknown] == ["--nnode"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--sequence-parallel true", ["true"]),
        ("--data-path 0.3 one 0.7 two --sequence-parallel 1 # all", ["1"]),
        ('--log-throughput "$EXTRA" $(date) 2>&1 | tee train.log', []),
    ],
)
def test_a_word_that_no_option_takes_is_named(line, words):
    """Megatron's parser refuses ``--sequence-parallel true`` as an unrecognised argument."""
    found = read(MEGATRON + line)
    assert [one.name for one in found.unknown] == words
    assert all("no option takes" in one.message for one in found.unknown)


def test_words_of_other_commands_are_no_words_of_megatrons():
    found = read("module load cuda\ncd /data/run 1\n" + MEGATRON.partition("pretrain_gpt.py ")[2])
    assert found.unknown == ()


def test_an_option_that_is_known_and_not_predicted_is_noted():
    found = read(MEGATRON + "--window-size 128")
    assert found.unknown == ()
    assert found.notes == ("--window-size is not in this answer",)


def test_options_of_a_variable_that_the_script_does_not_set_are_noted():
    assert "$EXTRA is not set in the file" in read(f"{MEGATRON} $EXTRA").notes[0]


@pytest.mark.parametrize(
    ("line", "micro_batches"),
    [
        ("--defer-embedding-wgrad-compute", -1),
        ("--defer-embedding-wgrad-compute --wgrad-deferral-limit 3", 3),
        ("--wgrad-deferral-limit 3", 0),
    ],
)
def test_megatron_says_of_how_many_micro_batches_the_heads_gradient_waits(line, micro_batches):
    assert read(MEGATRON + line).megatron.deferred_head_gradients == micro_batches


def test_a_field_that_megatron_overwrites_or_misses_is_noted():
    found = read(YAML + "  virtual_pipeline_model_parallel_size: 2")
    assert found.notes[0].startswith("line 7: Megatron works")
    assert "asks for every field of TransformerConfig" in found.notes[1]


def test_a_recipe_says_what_the_file_does_not():
    found = read(BRIDGE + "train.global_batch_size=64")
    assert found.model == "meta-llama/Meta-Llama-3.1-8B"
    assert found.workload["sequence_length"] == 8192
    assert found.workload["global_batch"] == 64
    assert "llama31_8b_pretrain_config() sets" in found.notes[0]


def test_a_recipe_that_is_not_known_is_said_with_the_nearest():
    found = read(BRIDGE.replace("llama31_8b_pretrain", "llama31_8b_pretain") + "train.x=1")
    assert "did you mean llama31_8b_pretrain_config?" in found.notes[0]
    assert [one.name for one in found.unknown] == ["train.x"]


def test_recipes_set_fields_that_their_release_knows():
    known = option_table("megatron_bridge").values
    assert len(recipes()) > 100
    for recipe in recipes().values():
        assert set(recipe.fields) <= set(known)
        assert recipe.module.startswith("megatron.bridge.recipes.")


def test_precision_and_loss_of_a_recipe_are_read():
    found = read(BRIDGE + "mixed_precision=bf16_with_fp8_current_scaling_mixed")
    assert found.workload["precision"] == "fp8_mixed"
    assert found.runtime["fp8_recipe"] == "tensorwise"
    assert found.runtime["loss"] == "fused"
