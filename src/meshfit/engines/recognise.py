"""Which engine a file is for, by what is in it rather than by its name."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from meshfit.engines.accelerate.read import read as read_accelerate
from meshfit.engines.accelerate.write import layout_options as accelerate_options
from meshfit.engines.deepspeed.read import read as read_deepspeed
from meshfit.engines.deepspeed.write import layout_options as deepspeed_options
from meshfit.engines.engine_file import EngineFile
from meshfit.engines.layout_options import Writer
from meshfit.engines.megatron.read import read as read_megatron
from meshfit.engines.megatron.write import layout_options as megatron_options
from meshfit.engines.megatron.yaml.read import read as read_megatron_yaml
from meshfit.engines.megatron.yaml.write import layout_options as megatron_yaml_options
from meshfit.engines.megatron_bridge import read as bridge
from meshfit.engines.megatron_bridge.write import layout_options as bridge_options
from meshfit.engines.serving_file import ServingForm
from meshfit.engines.sglang import read as sglang
from meshfit.engines.sglang import write as write_sglang
from meshfit.engines.syntax.edit import HYDRA, SHELL, TOML, YAML, Editor, edited
from meshfit.engines.syntax.edit_json import edited_json
from meshfit.engines.torchtitan.read import read_python_file, read_toml_file
from meshfit.engines.torchtitan.write import python_options, toml_options
from meshfit.engines.vllm import read as vllm
from meshfit.engines.vllm import write as write_vllm

Reader = Callable[[str, int | None], EngineFile]
_F = TypeVar("_F", "Form", ServingForm)


@dataclass(frozen=True, kw_only=True)
class Form:
    """One kind of file.

    Attributes:
        words: what it is called.
        marks: patterns of which any one tells it from all others.
        read: what it says.
        write: the options that a layout decides, as it names them.
        edit: its text with options set otherwise; None where changes are listed and not made.
    """

    words: str
    marks: tuple[str, ...]
    read: Reader
    write: Writer
    edit: Editor | None


FORMS: tuple[Form, ...] = (
    Form(
        words="a recipe of Megatron-Bridge",
        marks=(r"^\s*(from|import)\s+megatron\.bridge\b",),
        read=bridge.read_python_file,
        write=bridge_options,
        edit=None,
    ),
    Form(
        words="overrides of a recipe of Megatron-Bridge",
        marks=(
            r"^[^#\n]*\s\+{0,2}(model\.[\w.]*parallel\w*|train\.(micro|global)_batch_size)=",
            r"^[^#\n]*run_recipe\.py\b",
        ),
        read=bridge.read_command,
        write=bridge_options,
        edit=partial(edited, style=HYDRA),
    ),
    Form(
        words="arguments of Megatron-LM",
        marks=(
            r"--(tensor|pipeline)-model-parallel-size\b",
            r"--micro-batch-size\b",
            r"--num-layers\b",
        ),
        read=read_megatron,
        write=megatron_options,
        edit=partial(edited, style=SHELL),
    ),
    Form(
        words="a configuration function of torchtitan",
        marks=(r"^\s*(from|import)\s+torchtitan\b",),
        read=read_python_file,
        write=python_options,
        edit=None,
    ),
    Form(
        words="a TOML file of torchtitan",
        marks=(r"^\s*\[(parallelism|training|activation_checkpoint)\]",),
        read=read_toml_file,
        write=toml_options,
        edit=partial(edited, style=TOML),
    ),
    Form(
        words="a YAML file of Megatron-LM",
        marks=(r"^(language_model|model_parallel)\s*:",),
        read=read_megatron_yaml,
        write=megatron_yaml_options,
        edit=partial(edited, style=YAML),
    ),
    Form(
        words="a YAML file of Megatron-Bridge",
        marks=(r"^\s+(tensor|pipeline|context|expert)_model_parallel_size\s*:", r"^ddp\s*:"),
        read=bridge.read_yaml_file,
        write=bridge_options,
        edit=partial(edited, style=YAML),
    ),
    Form(
        words="a JSON file of DeepSpeed",
        marks=(r'"(zero_optimi[sz]ation|train_micro_batch_size_per_gpu|train_batch_size)"\s*:',),
        read=read_deepspeed,
        write=deepspeed_options,
        edit=edited_json,
    ),
    Form(
        words="a YAML file of Accelerate",
        marks=(
            r"^(distributed_type|compute_environment|fsdp_config|parallelism_config)\s*:",
            r'"(distributed_type|fsdp_config|parallelism_config)"\s*:',
        ),
        read=read_accelerate,
        write=accelerate_options,
        edit=partial(edited, style=YAML),
    ),
)

_NOT_A_COMMENT = r"^[^#\n]*"

SERVING_FORMS: tuple[ServingForm, ...] = (
    ServingForm(
        words="a command of vLLM",
        marks=(_NOT_A_COMMENT + f"({vllm.PROGRAM.pattern})",),
        read=vllm.read,
        write=write_vllm.layout_options,
        style=SHELL,
        budget=write_vllm.BUDGET,
    ),
    ServingForm(
        words="a command of SGLang",
        marks=(_NOT_A_COMMENT + f"({sglang.PROGRAM.pattern})",),
        read=sglang.read,
        write=write_sglang.layout_options,
        style=SHELL,
        budget=write_sglang.BUDGET,
    ),
    ServingForm(
        words="a YAML file of SGLang",
        marks=(
            r"^(model|mem|context|tp|attn|max-running)[-_](path|fraction|length|size|dp|requests)",
        ),
        read=sglang.read_config,
        write=write_sglang.layout_options,
        style=YAML,
        budget=write_sglang.BUDGET,
    ),
    ServingForm(
        words="a YAML file of vLLM",
        marks=(
            r"^(tensor|pipeline|data)[-_]parallel[-_]size\s*:",
            r"^(max[-_](model[-_]len|num[-_]seqs)|gpu[-_]memory[-_]utilization)\s*:",
        ),
        read=vllm.read_config,
        write=write_vllm.layout_options,
        style=YAML,
        budget=write_vllm.BUDGET,
    ),
)

KNOWN = "; ".join([*(form.words for form in FORMS), *(form.words for form in SERVING_FORMS)])
"""All kinds of files, as a message names them."""


def recognise_server(text: str) -> ServingForm | None:
    """The kind of file that starts a server which ``text`` is; None where it is no such file, or one
    that trains."""
    if recognise(text) is not None:
        return None
    return _first_marked(SERVING_FORMS, text)


def recognise(text: str) -> Form | None:
    """The kind of file that trains which ``text`` is; None where no mark of any is in it."""
    return _first_marked(FORMS, text)


def _first_marked(forms: Sequence[_F], text: str) -> _F | None:
    marked = (
        form for form in forms if any(re.search(mark, text, re.MULTILINE) for mark in form.marks)
    )
    return next(marked, None)
