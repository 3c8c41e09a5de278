from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshfit.errors import InputError
from meshfit.job.layout import parse_layout_text
from meshfit.job.read import read_job
from meshfit.mesh.spec import LayoutSpec, stages_text

MODEL = """
{"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
 "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 256, "rope_scale": Infinity}
"""
JOB = """
schema_version: 1
model: config.json
workload: {sequence_length: 32, global_batch: 8 sequences, precision: fp32}
cluster: {here: {ranks: 2, oversubscribe: true}}
"""


@pytest.fixture
def write(tmp_path):
    (tmp_path / "config.json").write_text(MODEL)

    def write(text: str = JOB, **replaced: str) -> Path:
        for old, new in replaced.items():
            assert old in text
            text = text.replace(old, new)
        path = tmp_path / "job.yaml"
        path.write_text(text)
        return path

    return write


def test_a_small_job_is_read_with_defaults(write, tmp_path):
    job = read_job(write())
    assert job.training.global_batch_size == 8
    assert job.training.tokens_per_step == 256
    assert job.topology.num_accelerators == 2
    assert job.topology.is_here
    assert job.headroom_fraction == 0.1
    assert job.layout is None
    assert job.name == tmp_path.name


def test_a_folder_stands_for_the_job_in_it(write):
    assert read_job(write().parent).model.vocab_size == 256


def test_layout_overrides_add_to_the_layout_of_the_file(write):
    path = write(JOB + "layout: {tp: 2, micro_batch_size: 4}\n")
    job = read_job(path, layout="micro_batch_size=2,schedule=1F1B")
    assert job.layout == LayoutSpec(tp=2, sp=True, micro_batch_size=2)


@pytest.mark.parametrize(
    ("batch", "sequence", "expected"),
    [
        ("128 sequences", 32, 128),
        ("128", 32, 128),
        ("4M tokens", 4000, 1000),
        ("4M tokens", 8192, 512),
        ("16M tokens", 8192, 2048),
    ],
)
def test_a_batch_in_tokens_may_be_meant_in_powers_of_two(write, batch, sequence, expected):
    text = JOB.replace("8 sequences", batch).replace(
        "sequence_length: 32", f"sequence_length: {sequence}"
    )
    job = read_job(write(text))
    assert job.training.global_batch_size == expected
    assert bool(job.notes) == (batch.endswith("tokens") and 4_000_000 % sequence != 0)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("sequence_length", "sequnce_length", "did you mean 'sequence_length'"),
        ("32", "-32", "sequence_length: -32 is not allowed.*greater than 0"),
        ("32", "0", "greater than 0"),
        ("32", "2.5", "sequence_length: 2.5"),
        ("8 sequences", "-8", "global_batch"),
        ("8 sequences", "0 sequences", "greater than 0"),
        ("8 sequences", "true", "global_batch: True is not allowed"),
        ("8 sequences", "5T sequences", "at most 2,147,483,647"),
        ("8 sequences", "1e999 sequences", "finite"),
        ("32", "1000000000000", "sequence_length.*less than 2147483648"),
        ("fp32", "fp32, weight_decay: .inf", "weight_decay: inf is not allowed.*finite"),
        ("8 sequences", "8 bananas", "128 sequences"),
        ("8 sequences", "100 tokens", "nearest 96 or 128 tokens"),
        ("fp32", "fp31", "precision"),
        ("config.json", "absent.json", "absent.json"),
        ("schema_version: 1", "schema_version: 2", "schema_version"),
        ("ranks: 2", "ranks: 0", "ranks"),
        ("oversubscribe: true", "oversubscribed: true", "did you mean 'oversubscribe'"),
        ("ranks: 2", "ranks: 100000", "memory"),
        ("precision: fp32", "learning_rate: 0.1", "above 0.001"),
        ("precision: fp32", "data: {source: text}", "data.path is missing"),
    ],
)
def test_a_mistake_is_one_message_that_says_what_would_work(write, old, new, message):
    with pytest.raises(InputError, match=message):
        read_job(write(JOB.replace(old, new)))


def test_more_ranks_than_cores_need_the_word_oversubscribe(write):
    with pytest.raises(InputError, match="oversubscribe"):
        read_job(write(JOB.replace("ranks: 2, oversubscribe: true", "ranks: 4096")))


def test_a_model_that_is_not_json_is_refused_with_its_place(write):
    path = write()
    (path.parent / "config.json").write_text('{"model_type": "llama",\n oops}')
    with pytest.raises(InputError, match="line 2"):
        read_job(path)


@pytest.mark.parametrize(
    ("run", "message"),
    [
        ("{steps: 5, warmup: 5}", "steps must be at least 6"),
        ("{deadline: 0 s}", "run.deadline"),
        ("{budget: 4 bananas}", "4 GPU-h"),
        ("{budget: 1.2.3 GPU-h}", "4 GPU-h"),
        ("{deadline: .nan}", "run.deadline: nan is not allowed.*finite"),
        ("{hang: 1e999 s}", "finite"),
        ("{hang: true}", "run.hang: True is not allowed"),
        ("{repeats: 1000000}", "run.repeats.*1000"),
        ("{shortlist: 0}", "run.shortlist"),
    ],
)
def test_settings_of_runs_are_checked(write, run, message):
    with pytest.raises(InputError, match=message):
        read_job(write(JOB + f"run: {run}\n"))


def test_a_search_bound_may_be_one_value_or_a_list(write):
    job = read_job(write(JOB + "search: {tp: 2, schedule: [GPipe, 1F1B], headroom: 25%}\n"))
    assert job.search.tp == (2,)
    assert job.search.schedule == ("gpipe", "1f1b")
    assert job.headroom_fraction == 0.25
    with pytest.raises(InputError, match="empty list"):
        read_job(write(JOB + "search: {tp: []}\n"))
    with pytest.raises(InputError, match="headroom '100%' leaves no memory"):
        read_job(write(JOB + "search: {headroom: 100%}\n"))
    with pytest.raises(InputError, match=r"zero_stage.*less than or equal to 3"):
        read_job(write(JOB + "search: {zero_stage: 4}\n"))


def test_a_baseline_is_a_layout_or_a_file_of_one(write):
    path = write(JOB + "baseline: today.yaml\n")
    (path.parent / "today.yaml").write_text("layout: {dp_replicate: 2}\n")
    assert read_job(path).baseline == LayoutSpec(dp_replicate=2)
    (path.parent / "today.yaml").write_text("dp_replicat: 2\n")
    with pytest.raises(InputError, match="did you mean 'dp_replicate'"):
        read_job(path)


def test_identity_ignores_comments_and_order_and_sees_values(write):
    first = read_job(write()).identity
    reordered = "\n".join(reversed(JOB.strip().splitlines())) + "\n# a comment\n"
    assert read_job(write(reordered)).identity == first
    assert read_job(write(JOB.replace("8 sequences", "4 sequences"))).identity != first


@pytest.mark.parametrize(
    "text", ["tp", "tp=x", "zz=3", "tp=-1", "stage_layers=-1:1", "tp=2,tp=4", "tp=" + "9" * 5000]
)
def test_layout_text_that_says_nothing_legal_is_refused(text):
    with pytest.raises(InputError, match="--layout"):
        parse_layout_text(text)


def test_layout_text_takes_lists_and_booleans():
    assert parse_layout_text("pp=2, stage_layers=3:1, sp=false") == {
        "pp": 2,
        "stage_layers": [3, 1],
        "sp": False,
    }


def test_stages_are_written_in_runs_in_a_job_too(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(
        "schema_version: 1\nmodel: llama-3.1-8b\ncluster: 1x8 H100-SXM\nengine: megatron\n"
        "workload: {sequence_length: 4096, global_batch: 64 sequences}\n"
        "baseline: {pp: 2, vpp: 17, dp_shard: 4, stage_layers: '0:1x32:0'}\n"
    )
    job = read_job(path, to_run=False)
    assert job.baseline.stage_layers == (0, *(1,) * 32, 0)


def test_runs_of_equal_stages_are_written_once():
    assert stages_text([7, *[8] * 14, 7]) == "7:8x14:7"
    assert stages_text([3, 3, 5]) == "3:3:5"


@given(st.lists(st.integers(1, 3), min_size=2, max_size=12))
def test_layers_of_stages_are_read_as_they_are_written(layers):
    assert parse_layout_text(f"stage_layers={stages_text(layers)}") == {"stage_layers": layers}


def test_a_model_folder_with_weights_gives_them_and_one_without_does_not(write, monkeypatch):
    path = write(JOB.replace("config.json", "llama"))
    folder = path.parent / "llama"
    folder.mkdir()
    (folder / "config.json").write_text(MODEL)
    assert read_job(path).weights is None
    (folder / "model.safetensors").touch()
    assert read_job(path).weights == folder
    monkeypatch.setenv("HOME", str(path.parent))
    assert read_job(write(JOB.replace("config.json", "~/llama"))).weights == folder


def test_a_name_of_the_catalogue_means_no_folder_of_that_name(write):
    path = write(JOB.replace("config.json", "llama-3.1-8b"))
    folder = path.parent / "llama-3.1-8b"
    folder.mkdir()
    (folder / "model.safetensors").touch()
    assert read_job(path).weights is None
