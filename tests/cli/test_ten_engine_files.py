"""``meshfit check`` on ten files as people have them, of eight kinds: five that run, five broken, each in a
way of its own. docs/engine-files.md lists them."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from meshfit.cli.main import app

FILES = Path(__file__).parent / "engine_files"
PAGE = Path(__file__).parents[2] / "docs" / "engine-files.md"
LLAMA_8B = ("--model", "llama-3.1-8b", "--sequence-length", "4096")

WHOLE = [
    ("llama_70b.sh", (), "Megatron-LM arguments", "tight"),
    (
        "bridge_70b.sh",
        ("--sequence-length", "8192"),
        "overrides of a recipe of Megatron-Bridge",
        "fits",
    ),
    ("titan.py", ("--gpus", "16"), "torchtitan configuration function", "fits"),
    ("fsdp2_tp2.yaml", LLAMA_8B, "Accelerate YAML", "fits"),
    ("vllm_70b.sh", (), "a command of vLLM", "fits"),
]
BROKEN = [
    ("zero2_misspelt.json", ("--gpus", "16", *LLAMA_8B), "unknown option zero_optimisation"),
    ("moe_experts_uneven.sh", (), "--expert-model-parallel-size"),
    ("titan_tp3.py", ("--gpus", "8"), "parallelism.tensor_parallel_degree"),
    ("vllm_too_large.yaml", (), "are lacking for the cache of a request of 131,072 tokens"),
    ("sglang_groups.sh", (), "attention dp*cp = 3*1 does not divide tp=8"),
]


def checked(name, options):
    words = ["check", str(FILES / name), "--json", "--accelerator", "H100-SXM", *options]
    result = CliRunner().invoke(app, words)
    assert result.stdout, result.exception
    return json.loads(result.stdout), result.exit_code


def said_of(document):
    """Everything that is wrong with a file, in words."""
    unknown = [one["message"] for one in document["unknown_options"]]
    broken = [f"{one['option']}: {one['message']}" for one in document["violations"]]
    return "\n".join([*unknown, *broken, *document["notes"]])


@pytest.mark.parametrize(
    ("name", "options", "form", "verdict"), WHOLE, ids=[row[0] for row in WHOLE]
)
def test_a_file_that_runs_is_predicted(name, options, form, verdict):
    document, code = checked(name, options)
    assert (document["violations"], document["unknown_options"]) == ([], [])
    assert (document["file"]["form"], document["verdict"], code) == (form, verdict, 0)
    assert document["memory"]["stages"]


@pytest.mark.parametrize(("name", "options", "said"), BROKEN, ids=[row[0] for row in BROKEN])
def test_a_file_that_does_not_run_says_what_is_wrong(name, options, said):
    document, code = checked(name, options)
    assert said in said_of(document)
    is_legal = not (document["violations"] or document["unknown_options"])
    assert (document["verdict"], code) == (("does_not_fit", 1) if is_legal else ("invalid", 2))


@pytest.mark.parametrize("name", [row[0] for row in (*WHOLE, *BROKEN)])
def test_the_page_lists_it(name):
    assert f"`{name}`" in PAGE.read_text(encoding="utf-8")
