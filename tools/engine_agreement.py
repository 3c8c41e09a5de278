"""Layouts that our rules and an engine's own checks agree on: legal, or not.

    .venv-engines/bin/python tools/engine_agreement.py \
        --megatron .venv-engines/wheels/megatron_core --vllm $MESHFIT_VLLM_PYTHON \
        [--layouts 200] [--write]

Without ``--megatron`` or ``--vllm`` that engine is left out, and nothing can be written.

For each engine, layouts (for vLLM whole commands) are drawn at random (a seed), legal and illegal ones;
each is written as the engine's own options, and judged twice: by the rules of its profile, and by the
engine's own code on CPU. ``--write`` puts the table into docs/engine-agreement.md. ``--megatron``: the
unpacked wheel of megatron-core, which is for Python 3.12; ``--vllm``: the Python of an environment with
vLLM's CPU build. What was drawn twice counts once.
"""

import argparse
import os
import random
import shlex
import sys
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import server_cases
from pages import DOCS, write_tables

from meshfit.cluster.shorthand import read_shorthand
from meshfit.engines import engine_profile
from meshfit.engines.accelerate.write import layout_options as accelerate_options
from meshfit.engines.deepspeed.write import layout_options as deepspeed_options
from meshfit.engines.handover import command_words, nested
from meshfit.engines.megatron.export import model_options
from meshfit.engines.megatron.write import layout_options as megatron_options
from meshfit.errors import InputError
from meshfit.mesh.facts import facts_of
from meshfit.mesh.rules import violations
from meshfit.mesh.spec import LayoutSpec
from meshfit.workload.models import read_model
from meshfit.workload.training import PRECISIONS, TrainingSpec

WORLD = 32
CLUSTER = read_shorthand("4x8 H100-SXM")
SEED = 0
MODELS = {
    "megatron": ("llama-3.1-8b", "qwen3-30b-a3b"),
    "deepspeed": ("llama-3.1-8b",),
    "accelerate": ("llama-3.1-8b",),
}

BEYOND: dict[str, dict[str, str]] = {
    "megatron": {
        "layers_divisible_by_stages": (
            "virtual stages counted per rank are held against layers when these are built "
            "(`get_num_layers_to_build`)"
        ),
        "interleaving_in_whole_rounds": "seen when the schedule runs (`schedules.py`)",
        "experts_need_sequence_parallel": "seen when experts are built (`moe_layer.py`)",
    },
    "deepspeed": {
        "world_size": "groups are made by the program, before the file is read",
        "attention_heads_divisible": "the file knows no model",
        "key_value_heads_divisible": "the file knows no model",
        "heads_divisible_by_all_to_all": "the file knows no model",
        "key_value_heads_divide_or_replicate_by_all_to_all": "the file knows no model",
        "tensor_parallel_needs_whole_parameters": "AutoTP's tutorial: stages 0 to 2",
    },
    "accelerate": {
        "attention_heads_divisible": "the file knows no model",
        "key_value_heads_divisible": "the file knows no model",
        "intermediate_size_divisible": "the file knows no model",
        "vocabulary_divisible": "the file knows no model",
        "global_batch_divisible": "batches are the script's",
        "sequence_divisible_by_exchange": "sequences are the script's",
    },
    "vllm": {
        "intermediate_size_divisible": "seen when layers are built (`utils.py` of `distributed`)",
        "expert_width_divisible": "seen when layers are built",
        "shared_expert_width_divisible": "seen when layers are built",
        "dense_width_keeps_quantization": "seen when layers are built",
        "expert_width_keeps_quantization": "seen when layers are built",
        "shared_expert_width_keeps_quantization": "seen when layers are built",
        "padded_vocabulary_divisible": "seen when layers are built",
        "key_value_heads_divide_or_replicate": "seen when layers are built",
        "experts_over_every_rank": "seen when layers are built",
        "balanced_experts_divisible": "seen when experts are placed",
        "layers_fill_stages": "seen when layers are built",
        "replicas_fill_hosts": "devices of a host are counted when processes start",
        "replica_within_hosts": "devices of a host are counted when processes start",
    },
}
"""Rules of ours that what is asked here cannot see -> why."""

Judge = Callable[[LayoutSpec, str, int], str]
"""What an engine says of a layout for a model and a global batch: nothing where it takes it."""


@dataclass
class Agreement:
    """Counts of one engine, and the layouts on which it and our rules differ."""

    legal: int = 0
    illegal: int = 0
    beyond: int = 0
    """Refused by rules alone that the engine's check cannot see."""
    apart: list[tuple[str, str, str]] = field(default_factory=list)

    def add(self, engine: str, what: str, rules: list[str], theirs: str) -> None:
        """Count one case: the rules that it breaks, and what the engine says."""
        if rules and not theirs and set(rules) <= BEYOND[engine].keys():
            self.beyond += 1
        elif bool(rules) != bool(theirs):
            self.apart.append((what, "; ".join(rules), theirs))
        elif rules:
            self.illegal += 1
        else:
            self.legal += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megatron", type=Path)
    parser.add_argument("--vllm", type=Path)
    parser.add_argument("--layouts", type=int, default=200)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    if arguments.write and not (arguments.megatron and arguments.vllm):
        parser.error("--write is for all engines together: give --megatron and --vllm")
    judges: dict[str, Judge] = {"deepspeed": deepspeed_judge(), "accelerate": accelerate_judge()}
    if arguments.megatron:
        judges = {"megatron": megatron_judge(arguments.megatron), **judges}
    found = {engine: compare(engine, judge, arguments.layouts) for engine, judge in judges.items()}
    if arguments.vllm:
        found["vllm"] = compare_commands(arguments.vllm, arguments.layouts)
    text = table(found)
    if arguments.write:
        write_tables(DOCS / "engine-agreement.md", text)
    print(text)


def compare(engine: str, judge: Judge, count: int) -> Agreement:
    """Draw layouts until ``count`` different ones could be written for the engine."""
    draw, found, seen = random.Random(SEED), Agreement(), set()
    profile = engine_profile(engine)
    while len(seen) < count:
        model_name = draw.choice(MODELS[engine])
        layout, batch = random_layout(draw, engine), draw.choice((32, 64, 96, 128))
        if (layout, model_name, batch) in seen:
            continue
        try:
            theirs = judge(layout, model_name, batch)
        except InputError:  # no option of the engine says it
            continue
        seen.add((layout, model_name, batch))
        training = TrainingSpec(
            sequence_length=4096, global_batch_size=batch, precision=PRECISIONS["bf16_mixed"]
        )
        facts = facts_of(
            model=read_model(model_name), training=training, topology=CLUSTER, layout=layout
        )
        rules = [one.rule for one in violations(facts, profile)]
        found.add(engine, f"{model_name} {layout.label} batch={batch}", rules, theirs)
    return found


def compare_commands(python: Path, count: int) -> Agreement:
    """Draw ``count`` different commands of vLLM, and ask both of each."""
    draw, found, seen = random.Random(SEED), Agreement(), set()
    with server_cases.vllm(python) as ask:
        while len(seen) < count:
            command = server_cases.random_command(draw)
            if tuple(command) not in seen:
                seen.add(tuple(command))
                rules = server_cases.our_rules(command)
                found.add("vllm", " ".join(command), rules, ask(command))
    return found


def random_layout(draw: random.Random, engine: str) -> LayoutSpec:
    """A layout whose degrees mostly multiply to the world, right or wrong in other ways."""
    has_pipeline = engine == "megatron"
    tp, cp = draw.choice((1, 1, 2, 3, 4, 8, 16)), draw.choice((1, 1, 1, 2, 4))
    pp = draw.choice((1, 1, 2, 3, 4, 8)) if has_pipeline else 1
    left = max(1, WORLD // (tp * cp * pp))
    if engine == "accelerate":  # the others have no option for it
        left += draw.random() < 0.05
    zero_stage = draw.choice(
        {"megatron": (0, 1, 1), "deepspeed": (0, 1, 2, 3)}.get(engine, (0, 2, 3))
    )
    vpp = draw.choice((1, 1, 2, 4, 5)) if pp > 1 else 1
    recompute = draw.choice(("none", "full", "selective") if has_pipeline else ("none", "full"))
    return LayoutSpec(
        tp=tp,
        sp=tp > 1 and has_pipeline and draw.random() < 0.8,
        cp=cp,
        pp=pp,
        vpp=vpp,
        schedule="interleaved_1f1b" if vpp > 1 else "1f1b",
        ep=draw.choice((1, 1, 2, 3, 8)) if has_pipeline else 1,
        dp_shard=left if zero_stage else 1,
        dp_replicate=1 if zero_stage else left,
        zero_stage=zero_stage if left > 1 or not zero_stage else 0,
        micro_batch_size=draw.choice((1, 1, 2, 3)),
        recompute=recompute,
    )


def megatron_judge(folder: Path) -> Judge:
    """``parse_args`` and ``validate_args`` of Megatron-LM."""
    import typing_extensions  # noqa: PLC0415

    typing.override = typing_extensions.override  # type: ignore[assignment]
    sys.path.insert(0, str(folder))
    from megatron.training import arguments as theirs  # noqa: PLC0415

    theirs.get_device_arch_version = lambda: 9
    os.environ |= {
        "WORLD_SIZE": str(WORLD), "RANK": "0", "LOCAL_RANK": "0", "CUDA_DEVICE_MAX_CONNECTIONS": "1",
    }  # fmt: skip

    def judge(layout: LayoutSpec, model: str, batch: int) -> str:
        options = {
            **model_options(read_model(model)),
            **megatron_options(layout, batch),
            "--global-batch-size": batch,
            "--seq-length": 4096,
            "--bf16": True,
            "--train-iters": 10,
            "--lr": "0.001",
            "--mock-data": True,
            "--tokenizer-type": "NullTokenizer",
            "--vocab-size": 128256,
            "--no-rope-fusion": True,  # Transformer Engine and CUDA are not here
            "--moe-grouped-gemm": None,
        }
        sys.argv = ["pretrain_gpt.py", *shlex.split(" ".join(command_words(options)))]
        return _said(lambda: _validated(theirs))

    return judge


def _validated(theirs: typing.Any) -> None:
    arguments = theirs.validate_args(theirs.parse_args(), {})
    theirs.core_transformer_config_from_args(arguments)
    world = arguments.world_size
    if arguments.num_experts and world % (
        arguments.expert_tensor_parallel_size
        * arguments.expert_model_parallel_size
        * arguments.pipeline_model_parallel_size
    ):
        raise ValueError("parallel_state: world % (etp * ep * pp)")


def deepspeed_judge() -> Judge:
    """``DeepSpeedConfig`` with a stub of the model-parallel unit."""
    from deepspeed.runtime import config as theirs  # noqa: PLC0415

    theirs.dist = types.SimpleNamespace(
        get_rank=lambda *_: 0,
        get_world_size=lambda *_: WORLD,
        is_initialized=lambda: True,
    )

    def judge(layout: LayoutSpec, _model: str, batch: int) -> str:
        data = max(1, WORLD // (layout.tp * layout.cp))
        unit = types.SimpleNamespace(
            get_data_parallel_world_size=lambda: data,
            get_model_parallel_world_size=lambda: layout.tp,
        )
        config = nested(deepspeed_options(layout, batch))
        config |= {"train_batch_size": batch, "bf16": {"enabled": True}}
        return _said(lambda: theirs.DeepSpeedConfig(config, mpu=unit))

    return judge


def accelerate_judge() -> Judge:
    """``ParallelismConfig`` of Accelerate and its check against the number of processes."""
    from accelerate.parallelism_config import ParallelismConfig  # noqa: PLC0415

    def judge(layout: LayoutSpec, _model: str, batch: int) -> str:
        options = accelerate_options(layout, batch)
        sizes = {
            name.rpartition("parallelism_config_")[2]: value
            for name, value in options.items()
            if name.startswith("parallelism_config.") and value is not None
        }

        if not sizes:  # plain data parallelism, over however many processes are started
            if layout.world_size != WORLD:
                raise InputError("no option says the number of replicas")
            return ""

        def build() -> None:
            config = ParallelismConfig(**sizes)
            if config.total_size != WORLD:
                raise ValueError(f"total_size ({config.total_size}) is not {WORLD}")

        return _said(build)

    return judge


def _said(check: Callable[[], object]) -> str:
    """The first line of what a check raises; nothing where it passes. Its own prints are dropped."""
    with Path(os.devnull).open("w") as nowhere:
        out, err = sys.stdout, sys.stderr
        sys.stdout = sys.stderr = nowhere
        try:
            check()
        except (Exception, SystemExit) as error:
            return (str(error).strip().splitlines() or [type(error).__name__])[0][:140] or "refused"
        finally:
            sys.stdout, sys.stderr = out, err
    return ""


def table(found: dict[str, Agreement]) -> str:
    rows = [
        "| engine | layouts | both legal | both refuse | ours alone | apart |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    apart = []
    for engine, one in found.items():
        name = f"{engine} {engine_profile(engine).version}"
        total = one.legal + one.illegal + one.beyond + len(one.apart)
        rows.append(
            f"| {name} | {total} | {one.legal} | {one.illegal} | {one.beyond} | {len(one.apart)} |"
        )
        apart += [(engine, *row) for row in one.apart]
    rows += [
        "",
        "Ours alone: refused by rules only that what is asked of the engine here cannot see:",
        "",
    ]
    rows += [
        f"- {engine}, `{rule}`: {why}"
        for engine, all_ in BEYOND.items()
        if engine in found
        for rule, why in all_.items()
    ]
    if apart:
        rows += ["", "| engine | layout | our rules | the engine |", "| --- | --- | --- | --- |"]
        rows += [
            f"| {e} | `{what}` | {ours or 'legal'} | {theirs or 'takes it'} |"
            for e, what, ours, theirs in apart
        ]
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    main()
