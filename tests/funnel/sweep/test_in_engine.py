"""``meshfit run --in-engine``: refusals and outcomes with a stand-in for Accelerate, and the real one."""

import json
import os
import shutil

import pytest
from typer.testing import CliRunner

from meshfit.cli.main import app
from meshfit.compare.candidate import measured_candidate
from meshfit.errors import InputError, NotInstalledError
from meshfit.job.read import read_job
from meshfit.mesh.spec import make_layout
from meshfit.record.store import RecordStore
from meshfit.workload.corpus import open_corpus
from tests.engines.logs import samples
from tests.funnel.small_job import CONFIG, write_job

RUN = "run: {steps: 8, warmup: 2, deadline: 60 s}\n"
HISTORY = json.dumps(
    samples.trainer_state(
        [samples.trainer_entry(n, 1.0 + 0.25 * n, loss=6.0 - n / 10) for n in range(1, 9)]
        + [{"max_memory_resident": 3 * 2**20, "step": 8}]
    )
)
TRAINS = f"cat > trainer_state.json <<'END'\n{HISTORY}\nEND\n"


def engine_environment(folder, does, version="1.15.0"):
    """A Python that knows which version of Accelerate it has (empty: none), and an ``accelerate``."""
    folder.mkdir(parents=True)
    tells = f"echo {version}" if version else "exit 1"
    for name, text in {"python": tells, "accelerate": does}.items():
        path = folder / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
    return folder / "python"


@pytest.fixture
def in_engine(tmp_path):
    """Runs the small job in what stands in for Accelerate; the document, the exit code, the folder."""

    def run(
        does=TRAINS, *, layout="dp_replicate=2", engine="accelerate", version="1.15.0", more=RUN
    ):
        python = engine_environment(tmp_path / "bin", does, version)
        out = tmp_path / "out"
        words = ["run", str(write_job(tmp_path, more)), "--layout", layout, "--in-engine", engine]
        words += ["--engine-python", str(python), "--out", str(out), "--json"]
        result = CliRunner().invoke(app, words)
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return json.loads(result.stdout), result.exit_code, out

    return run


def test_the_engines_log_is_read_and_set_beside_the_prediction(in_engine):
    document, exit_code, out = in_engine()
    assert (exit_code, document["outcome"], document["failure"]) == (0, "ok", None)
    assert document["installed"] == "1.15.0"
    assert document["measured"]["step_time"]["median"] == pytest.approx(0.25)
    assert document["measured"]["tokens_per_s"] == pytest.approx(4 * 32 / 0.25)
    assert document["measured"]["memory"]["resident"] == 3 * 2**20
    assert document["measured"]["losses"]["8"] == pytest.approx(5.2)
    assert document["comparison"][0]["figure"] == "step_time"
    assert (out / "accelerate" / "accelerate.yaml").exists()
    assert (out / "accelerate" / "engine-log.json").exists()


def test_the_run_is_a_record_as_those_of_our_own_runner_are(in_engine):
    _, _, out = in_engine()
    (record,) = RecordStore(out).records()
    assert (record.outcome, record.candidate, record.folder) == (
        "ok",
        "dp_replicate=2",
        "accelerate",
    )
    assert record.result.losses[0] == pytest.approx(5.9)
    assert record.result.environment["engine"] == "accelerate 1.15.0"
    candidate = measured_candidate([record], warmup_steps=2)
    assert candidate.step_time_s == pytest.approx(0.25)
    assert candidate.tokens_per_s == pytest.approx(4 * 32 / 0.25)
    assert candidate.predicted is not None


def test_a_second_run_keeps_the_files_of_the_first(in_engine, tmp_path):
    _, _, out = in_engine()
    shutil.rmtree(tmp_path / "bin")
    in_engine()
    assert (out / "accelerate.earlier-1" / "trainer_state.json").exists()
    assert len(RecordStore(out).records()) == 2


@pytest.mark.parametrize(
    ("does", "outcome", "words"),
    [
        ("echo '[rank1]: ValueError: no such layer'; exit 1", "crash", "ValueError: no such layer"),
        (
            "echo 'torch.OutOfMemoryError: CUDA out of memory.'; exit 1",
            "out_of_memory",
            "CUDA out of memory",
        ),
        ("echo nothing; exit 7", "crash", "nothing"),
        ("exit 0", "crash", "no whole line of a training step"),
    ],
)
def test_a_run_that_fails_says_why_and_is_a_record(in_engine, does, outcome, words):
    document, exit_code, out = in_engine(does)
    assert (exit_code, document["outcome"]) == (3, outcome)
    assert words in document["failure"]
    (record,) = RecordStore(out).records()
    assert (record.outcome, record.result) == (outcome, None)


def test_a_run_past_its_deadline_is_ended_and_what_it_logged_is_kept(in_engine):
    more = RUN.replace("60 s", "3 s")
    document, exit_code, _ = in_engine(f"{TRAINS}\nsleep 60", more=more)
    assert (exit_code, document["outcome"]) == (3, "hang")
    assert "run.deadline" in document["failure"]
    assert document["measured"]["step_time"]["median"] == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"layout": "dp_shard=2"}, "FSDP on accelerators alone.*use dp_replicate"),
        ({"engine": "torchtitan"}, "torchtitan 0.3 trains on GPUs alone"),
        ({"engine": "megatron"}, "megatron is not started from here"),
        ({"engine": "deepspeed"}, "deepspeed is not started from here"),
        ({"engine": "torchtitn"}, "try torchtitan"),
        ({"layout": "dp_replicate=3"}, "is not legal"),
    ],
)
def test_what_cannot_run_is_refused_before_anything_starts(in_engine, tmp_path, how, words):
    with pytest.raises(InputError, match=words):
        in_engine(**how)
    assert not (tmp_path / "out").exists()


def test_an_engine_that_is_not_installed_is_no_mistake_in_the_job(in_engine, tmp_path):
    with pytest.raises(
        NotInstalledError,
        match=r"accelerate is not installed in the environment of .*--engine-python",
    ):
        in_engine(version="")
    assert not (tmp_path / "out").exists()


def test_a_cluster_elsewhere_is_refused(in_engine, tmp_path):
    job = write_job(tmp_path)
    text = job.read_text()
    job.write_text(text[: text.index("cluster:")] + "cluster: 1x2 H100-SXM\n")
    result = CliRunner().invoke(
        app, ["run", str(job), "--layout", "dp_replicate=2", "--in-engine", "accelerate"]
    )
    assert "cluster: here" in str(result.exception)


def losses_of_our_trainer(job, steps):
    """Of the job in one process of our own runner."""
    import torch

    from meshfit.run.mesh import build_mesh
    from meshfit.run.parallelize import build_rank_model
    from meshfit.run.trainer import Trainer

    training = job.training
    mesh = build_mesh(make_layout({"micro_batch_size": training.global_batch_size}), "cpu")
    device = torch.device("cpu")
    model = build_rank_model(job.model.config, job.weights, mesh, training.precision, device)
    corpus = open_corpus(
        training.data,
        vocab_size=job.model.config["vocab_size"],
        sequence_length=training.sequence_length,
        global_batch_size=training.global_batch_size,
    )
    trainer = Trainer(model, mesh, training, corpus, device)
    for step in range(steps):
        trainer.accumulate_gradients(step)
        trainer.update()
    return trainer.losses()


@pytest.mark.engines
@pytest.mark.parametrize("layout", ["dp_replicate=2", "dp_replicate=2,micro_batch_size=2"])
def test_accelerate_itself_trains_as_our_runner_does_and_its_log_is_read(tmp_path, layout):
    """Two CPU ranks of the Accelerate that ``make engines`` installs, from the same weights."""
    from meshfit.run.model.weights import write_initial_weights

    file = write_job(tmp_path, RUN)
    write_initial_weights(CONFIG, tmp_path / "start", 0)
    shutil.copy(tmp_path / "config.json", tmp_path / "start")
    file.write_text(file.read_text().replace("model: config.json", "model: start"))
    words = ["run", str(file), "--layout", layout, "--json", "--in-engine", "accelerate"]
    words += ["--engine-python", os.environ["MESHFIT_ENGINE_PYTHON"]]
    result = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "out")])
    document = json.loads(result.stdout)
    assert document["outcome"] == "ok", document["failure"]
    measured = document["measured"]
    assert measured["step_time"]["median"] > 0
    assert measured["memory"]["resident"] > 2**20
    (record,) = RecordStore(tmp_path / "out").records()
    assert len(record.result.ranks[0].step_s) == 8
    ours = losses_of_our_trainer(read_job(file), 8)
    assert record.result.losses == pytest.approx(ours, rel=1e-5)
