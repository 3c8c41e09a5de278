"""Whatever a job or a config holds, ``meshfit check --json`` answers with a document or a message."""

import json

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from meshfit.cli.main import app
from meshfit.engines import PROFILES
from meshfit.errors import MeshfitError

CONFIG = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "max_position_embeddings": 64,
}
JOB = {
    "schema_version": 1,
    "model": "config.json",
    "workload": {"kind": "training", "sequence_length": 32, "global_batch": "8 sequences"},
    "cluster": "1x8 H100-SXM",
    "engine": "native",
    "layout": {"dp_shard": 8},
    "search": {"headroom": "10%"},
    "run": {"steps": 20},
}
LAYOUT_KEYS = (
    "dp_replicate", "dp_shard", "tp", "sp", "cp", "cp_method", "pp", "vpp", "schedule",
    "stage_layers", "ep", "etp", "zero_stage", "reshard_after_forward", "micro_batch_size",
    "recompute", "offload",
)  # fmt: skip

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 16),
    st.sampled_from([10**9, -(10**9), 10**30, 2**63]),
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from(
        ["", "native", "none", "full", "1f1b", "ring", "8 GiB", "0x8 H100", "99999x8 H100-SXM",
         "here", "10%", "-1", "[", "{rich}", "\x00", "\N{SNOWMAN}" * 5]
    ),
)  # fmt: skip
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=8,
)
degrees = st.sampled_from([1, 2, 4, 8, 3, 16, 10**12])
plausible = {
    "sp": st.booleans(),
    "cp_method": st.sampled_from(["ring", "all_gather", "all_to_all"]),
    "schedule": st.sampled_from(["GPipe", "1F1B", "Interleaved1F1B", "ZBVZeroBubble", "x"]),
    "stage_layers": st.lists(st.integers(1, 4), max_size=6),
    "zero_stage": st.integers(0, 3),
    "reshard_after_forward": st.booleans(),
    "recompute": st.sampled_from(["none", "full", "selective", "x"]),
    "offload": st.sampled_from(["cpu", "nvme"]),
}


def changed(document, draw):
    """``document`` with some keys replaced, dropped or added, at any depth."""
    made = dict(document)
    for key in draw(st.lists(st.sampled_from([*made, "unknown"]), max_size=2, unique=True)):
        action = draw(st.sampled_from(["replace", "drop", "inside"]))
        if action == "inside" and isinstance(made.get(key), dict):
            made[key] = changed(made[key], draw)
        elif action == "drop":
            made.pop(key, None)
        else:
            made[key] = draw(values)
    return made


@st.composite
def broken_jobs(draw):
    return changed(JOB, draw), changed(CONFIG, draw)


@st.composite
def plausible_jobs(draw):
    keys = draw(st.sets(st.sampled_from(LAYOUT_KEYS), max_size=4))
    layout = {key: draw(plausible.get(key, degrees)) for key in sorted(keys)}
    sizes = st.sampled_from([1, 2, 3, 4, 8, 64, 10**6])
    config = CONFIG | {
        key: draw(sizes)
        for key in draw(
            st.sets(st.sampled_from(["num_hidden_layers", "vocab_size", "hidden_size"]))
        )
    }
    engine = draw(st.sampled_from([*PROFILES, ["native", "megatron"]]))
    workload = JOB["workload"] | {"global_batch": draw(st.sampled_from([1, 7, 8, 4096]))}
    cluster = draw(st.sampled_from(["1x8 H100-SXM", "2x8 H100-SXM", "1x1 A100", "3x4 B200"]))
    return JOB | {
        "layout": layout,
        "engine": engine,
        "workload": workload,
        "cluster": cluster,
    }, config


def answer(folder, job, config, *arguments):
    """What the command does: its document, or the message of a mistake; anything else fails."""
    (folder / "job.yaml").write_text(yaml.safe_dump(job, allow_unicode=True), encoding="utf-8")
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    result = CliRunner().invoke(app, ["check", str(folder / "job.yaml"), "--json", *arguments])
    if isinstance(result.exception, MeshfitError):
        message = str(result.exception)
        assert message
        assert "Traceback" not in message
        assert result.stdout == ""
        return None
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return json.loads(result.stdout)


few = settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@given(made=broken_jobs())
@few
def test_a_broken_job_or_config_is_one_message(tmp_path, made):
    answer(tmp_path, *made)


@given(made=plausible_jobs())
@few
def test_a_plausible_job_is_answered_in_full(tmp_path, made):
    document = answer(tmp_path, *made)
    if document is None:
        return
    is_legal = not document["violations"]
    assert (document["verdict"] == "invalid") == (not is_legal)
    assert bool(document["memory"]) == (is_legal and not document["absent"])
    for violation in document["violations"] + document["warnings"]:
        assert violation["message"]
        assert violation["option"]
    for row in document.get("engines", []):
        assert row["legal"] == (not row["violations"])


@given(made=plausible_jobs())
@settings(few, max_examples=15)
def test_every_engine_answers_in_one_table(tmp_path, made):
    document = answer(tmp_path, *made, "--engine", "all")
    if document is not None:
        assert {row["engine"] for row in document["engines"]} == set(PROFILES)


def test_a_deeply_nested_job_is_one_message(tmp_path):
    deep: dict = {}
    inner = deep
    for _ in range(200):
        inner["layout"] = {}
        inner = inner["layout"]
    assert answer(tmp_path, JOB | deep, CONFIG) is None


@pytest.mark.parametrize("size", [10 * 2**20])
def test_a_large_config_is_answered(tmp_path, size):
    assert answer(tmp_path, JOB, CONFIG | {"note": "x" * size})["verdict"] == "fits"
