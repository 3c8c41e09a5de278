"""``meshfit plan`` from the command line: what ``--explain`` takes, whatever the model."""

import json

import pytest
import yaml
from typer.testing import CliRunner

from meshfit.cli.main import app
from meshfit.errors import InputError

JOB = {
    "schema_version": 1,
    "model": "config.json",
    "workload": {"kind": "training", "sequence_length": 64, "global_batch": "16 sequences"},
    "cluster": "1x8 H100-SXM",
}
DENSE = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 256,
    "max_position_embeddings": 64,
}
ENCODER_DECODER = {
    "model_type": "t5",
    "d_model": 64,
    "d_kv": 8,
    "d_ff": 128,
    "num_layers": 4,
    "num_heads": 8,
    "vocab_size": 256,
}


@pytest.fixture
def plan(tmp_path):
    def run(config, *arguments, **job):
        (tmp_path / "config.json").write_text(json.dumps(config))
        path = tmp_path / "job.yaml"
        path.write_text(yaml.safe_dump(JOB | job))
        return CliRunner().invoke(app, ["plan", str(path), *arguments])

    return run


def explained(result):
    document = json.loads(result.stdout)["explain"]
    return document["label"], {row["axis"] for row in document["rows"]}


def test_the_best_candidate_is_explained_or_the_layout_asked_for(plan):
    best = json.loads(plan(DENSE, "--json").stdout)["candidates"][0]["layout"]
    document = json.loads(plan(DENSE, "--explain", "--json").stdout)["explain"]
    assert document["layout"] == best
    asked = plan(DENSE, "--explain", "--layout", "tp=4,dp_replicate=2", "--json")
    assert explained(asked) == ("dp_replicate=2,tp=4", {"dp_replicate", "tp"})


def test_a_model_that_is_not_ranked_is_explained_for_a_given_layout(plan):
    given = plan(ENCODER_DECODER, "--explain", "--layout", "tp=4,dp_replicate=2", "--json")
    assert given.exit_code == 0
    assert explained(given)[1] == {"dp_replicate", "tp"}
    assert "exposed" in json.loads(given.stdout)["explain"]["absent"]
    of_job = plan(ENCODER_DECODER, "--explain", "--json", layout={"dp_shard": 8})
    assert explained(of_job)[1] == {"dp_shard"}


def test_without_a_layout_one_that_is_legal_is_named(plan):
    result = plan(ENCODER_DECODER, "--explain")
    assert isinstance(result.exception, InputError)
    named = str(result.exception).rpartition("--layout ")[2]
    assert plan(ENCODER_DECODER, "--explain", "--layout", named).exit_code == 0


def test_an_illegal_layout_is_not_explained(plan):
    for config in (DENSE, ENCODER_DECODER):
        result = plan(config, "--explain", "--layout", "tp=3")
        assert isinstance(result.exception, InputError)
        assert "8 attention heads cannot be divided by tp=3" in str(result.exception)


def test_a_layout_without_explain_is_refused(plan):
    assert "to --explain" in str(plan(DENSE, "--layout", "tp=4").exception)


def test_the_table_shows_every_formula(plan):
    text = plan(DENSE, "--explain", "--layout", "tp=4,dp_replicate=2").stdout
    assert "tp reduce_scatter" in text.replace("\n", " ")
    assert "64 tokens x 64 x" in text.replace("\n", " ")
