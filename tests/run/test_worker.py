"""The worker as a program: a request file in, a result file out."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from meshfit.compare.blame import nonfinite_loss
from meshfit.compare.stragglers import rank_scores
from meshfit.mesh.spec import make_layout
from meshfit.record.files import RESULT_NAME, read_document, write_json_atomically
from meshfit.record.heartbeat import FINISHED_PHASE, read_heartbeats
from meshfit.record.schema import CheckpointRequest, RunRequest, RunResult
from meshfit.workload.training import PRECISIONS, DataSpec, TrainingSpec
from tests.ranks import run_module
from tests.run.layouts import CONFIGS

pytestmark = pytest.mark.dist

STEPS, JUDGED_STEPS = 7, 3


@dataclass(frozen=True, kw_only=True)
class Run:
    """A request in a folder of that name; ``variables`` are of its environment."""

    name: str
    request: RunRequest
    variables: dict[str, str] = field(default_factory=dict)


def run_all(runs: Sequence[Run], folder: Path) -> None:
    """The worker on each request, in the same ranks: alone for a world of one, else under torchrun."""
    for run in runs:
        (folder / run.name).mkdir()
        write_json_atomically(folder / run.name / "request.json", run.request)
        (folder / run.name / "variables.json").write_text(json.dumps(run.variables))
    done = run_module(
        "tests.run.worker_session",
        *(str(folder / run.name) for run in runs),
        ranks=runs[0].request.layout.world_size,
        timeout_s=240,
    )
    (folder / f"{runs[0].name}.txt").write_text(done.stdout + done.stderr)


def result_of(folder: Path, name: str) -> RunResult:
    return read_document(RunResult, folder / name / RESULT_NAME)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("worker")


@pytest.fixture(scope="module")
def request_(folder: Path) -> RunRequest:
    """One process, text data; the weights are there."""
    from meshfit.run.model.weights import write_initial_weights

    config: dict[str, Any] = CONFIGS["llama"] | {"vocab_size": 256, "attention_dropout": 0.1}
    write_initial_weights(config, folder / "weights", seed=0)
    return RunRequest(
        plan_hash="plan",
        candidate="candidate",
        purpose="reference",
        model_config=config,
        weights=str(folder / "weights"),
        layout=make_layout({"micro_batch_size": 8}),
        training=TrainingSpec(
            sequence_length=16,
            global_batch_size=8,
            precision=PRECISIONS["fp32"],
            data=DataSpec(source="text", path="${stdlib}/*.py"),
        ),
        device_type="cpu",
        steps=STEPS,
        warmup_steps=2,
        judged_steps=JUDGED_STEPS,
        track_memory=False,
    )


@pytest.fixture(scope="module")
def alone(request_: RunRequest, folder: Path) -> Path:
    """The folder after every run of one process."""
    reference = str(folder / "reference")
    saving = CheckpointRequest(folder=str(folder / "checkpoints"), every=2)
    resuming = replace(saving, resume=True, asynchronous=True)
    train = replace(request_, purpose="train", steps=3, checkpoint=saving)
    unrunnable = replace(request_.layout, offload="optimizer")
    error_file = {"TORCHELASTIC_ERROR_FILE": str(folder / "error.json")}
    runs = [
        Run(name="reference", request=request_),
        Run(
            name="write_weights",
            request=replace(request_, purpose="weights", weights=str(folder / "new")),
        ),
        Run(
            name="parity",
            request=replace(request_, purpose="parity", reference=reference),
            variables={"MESHFIT_FAULT": "nan:rank=0:step=2"},
        ),
        Run(name="train", request=train),
        Run(name="resumed", request=replace(train, steps=5, checkpoint=resuming)),
        Run(
            name="invalid",
            request=replace(request_, layout=unrunnable),
            variables=error_file,
        ),
    ]
    run_all(runs, folder)
    return folder


@pytest.fixture(scope="module")
def reference(alone: Path) -> RunResult:
    return result_of(alone, "reference")


@pytest.fixture(scope="module")
def together(request_: RunRequest, alone: Path) -> Path:
    """The folder after every run on four ranks, too."""
    measured = replace(
        request_,
        purpose="measure",
        layout=make_layout({"pp": 2, "dp_shard": 2}),
        reference=str(alone / "reference"),
        track_memory=True,
        profile_steps=2,
    )
    slow = replace(
        request_,
        purpose="measure",
        layout=make_layout({"dp_replicate": 4}),
        steps=3,
        warmup_steps=1,
        profile_steps=1,
    )
    fault = {"MESHFIT_FAULT": "slow:rank=1:seconds=0.5"}
    runs = [
        Run(name="measured", request=measured),
        Run(name="slow", request=slow, variables=fault),
    ]
    run_all(runs, alone)
    return alone


@pytest.fixture(scope="module")
def measured(together: Path) -> RunResult:
    """Two pipeline stages of two shards each, measured."""
    return result_of(together, "measured")


def test_weights_are_written_once_and_the_result_says_so(alone: Path) -> None:
    assert (alone / "new" / "config.json").exists()
    assert result_of(alone, "write_weights").losses == ()
    ours, theirs = (
        (alone / name / "model-00001.safetensors").read_bytes() for name in ("new", "weights")
    )
    assert ours == theirs


def test_the_reference_keeps_its_gradients_and_takes_all_steps(
    reference: RunResult, folder: Path
) -> None:
    assert len(reference.losses) == len(reference.gradient_norms) == STEPS
    assert (folder / "reference" / "gradients.safetensors").exists()
    assert reference.gradients == ()
    assert reference.losses[-1] < reference.losses[0]


def test_a_layout_agrees_with_the_reference(measured: RunResult, reference: RunResult) -> None:
    for ours, theirs in zip(measured.losses, reference.losses, strict=True):
        assert ours == pytest.approx(theirs, rel=5e-6)
    assert len(measured.gradients) == 39
    assert max(gradient.error for gradient in measured.gradients) <= 5e-6


def test_every_rank_reports_itself(measured: RunResult) -> None:
    assert [report.rank for report in measured.ranks] == [0, 1, 2, 3]
    assert [report.stage for report in measured.ranks] == [0, 0, 1, 1]
    for report in measured.ranks:
        assert len(report.step_s) == len(report.input_wait_s) == STEPS
        assert all(
            0 <= wait < step for wait, step in zip(report.input_wait_s, report.step_s, strict=True)
        )
        assert report.memory.parameters > 0
        assert report.memory.optimizer > report.memory.parameters
        assert report.resident_bytes is not None
        assert report.resident_bytes > report.memory.allocated


def test_profiled_steps_say_what_is_exposed_along_which_axis(measured: RunResult) -> None:
    """Gloo runs a reduce-scatter as an all-reduce; the call site knows better."""
    for report in measured.ranks:
        time = report.profile.time
        assert set(time.exposed) == {
            "all_gather.dp_shard",
            "all_reduce.world",
            "p2p.pp",
            "reduce_scatter.dp_shard",
        }
        assert time.compute > 0
        assert time.optimizer > 0
        assert time.bubble >= 0
        assert time.recompute == 0
        assert 0 < report.profile.communication_s < time.step
    assert max(report.profile.time.bubble for report in measured.ranks) > 0


def test_a_run_leaves_a_timeline_of_every_rank(measured: RunResult, folder: Path) -> None:
    assert measured.ranks
    events = json.loads((folder / "measured" / "timeline.json").read_text())["traceEvents"]
    assert {event["pid"] for event in events} == {0, 1, 2, 3}
    steps = {event["name"] for event in events if event.get("tid") == 1 and event["ph"] == "X"}
    assert steps == {f"step {step}" for step in range(STEPS)} | {"profiled step"}
    assert {"import", "init", "build", "first_step", "train"} <= {e["name"] for e in events}


def test_shards_add_up_to_the_model(measured: RunResult) -> None:
    from meshfit.run.model.transformer import build_causal_lm

    model, _ = build_causal_lm(CONFIGS["llama"] | {"vocab_size": 256})
    whole = sum(parameter.numel() * 4 for parameter in model.parameters())
    assert sum(report.memory.parameters for report in measured.ranks) == whole


def test_useful_tokens_samples_and_data_are_recorded(measured: RunResult) -> None:
    assert measured.useful_tokens_per_step == 8 * 16
    assert [len(ids) for ids in measured.sample_ids] == [8] * JUDGED_STEPS
    assert measured.environment["data"]["source"] == "text"


def test_dropout_that_was_turned_off_is_recorded(measured: RunResult) -> None:
    assert measured.environment["dropout_set_to_zero"] == {"attention_dropout": 0.1}


def test_the_environment_of_the_run_is_recorded(measured: RunResult) -> None:
    assert measured.environment["collectives"] == "gloo"
    assert measured.environment["threads"] == 1
    assert "sdpa_kernel" in measured.environment


def test_phases_follow_one_another(measured: RunResult) -> None:
    assert list(measured.phases_s) == ["import", "init", "build", "first_step", "train", "end"]
    assert sorted(measured.phases_s.values()) == list(measured.phases_s.values())


def test_every_rank_ends_with_a_last_heartbeat(measured: RunResult, folder: Path) -> None:
    assert measured.ranks
    beats = read_heartbeats(folder / "measured")
    assert [beat.phase for beat in beats.values()] == [FINISHED_PHASE] * 4


def test_parity_takes_the_judged_steps_only_and_an_injected_nan_reaches_its_loss(
    reference: RunResult, alone: Path
) -> None:
    result = result_of(alone, "parity")
    assert len(result.losses) == JUDGED_STEPS
    assert result.losses[:2] == reference.losses[:2]
    assert math.isnan(result.losses[2])
    failure = nonfinite_loss(result)
    assert (failure.rank, failure.phase, failure.step) == (0, "train", 2)
    assert {gradient.error for gradient in result.gradients} == {0.0}


def test_a_slow_rank_scores_by_what_it_did_not_wait(together: Path) -> None:
    """All ranks' steps take equally long: the fast ones wait in the all-reduce."""
    scores = rank_scores(result_of(together, "slow").ranks, warmup_steps=1)
    slow, *_, fastest = sorted(scores, key=lambda score: score.relative)
    assert fastest.relative == 1.0
    assert not fastest.is_straggler
    assert (slow.rank, slow.is_straggler) == (1, True)
    assert slow.own_s > 0.5


def test_training_goes_on_from_its_checkpoint(
    request_: RunRequest, reference: RunResult, alone: Path
) -> None:
    """The reference took the same steps in one go."""
    first, second = result_of(alone, "train"), result_of(alone, "resumed")
    assert first.losses == reference.losses[:3]
    assert [saved.step for saved in first.checkpoints] == [2, 3]
    assert (first.first_step, first.load_s) == (0, None)
    assert second.first_step == 3
    assert second.load_s > 0
    assert second.losses == reference.losses[3:5]
    assert [saved.step for saved in second.checkpoints] == [4, 5]
    assert second.sample_ids == reference_samples(request_, range(3, 5))


def reference_samples(request: RunRequest, steps: range) -> tuple[tuple[int, ...], ...]:
    from meshfit.workload.corpus import open_corpus

    corpus = open_corpus(
        request.training.data,
        vocab_size=256,
        sequence_length=request.training.sequence_length,
        global_batch_size=request.training.global_batch_size,
    )
    return tuple(tuple(corpus.sample_ids(step).tolist()) for step in steps)


def test_what_cannot_run_is_told_as_wrong_input_and_leaves_no_result(alone: Path) -> None:
    message = json.loads((alone / "error.json").read_text())["message"]["message"]
    assert message.startswith("InputError: layout")
    assert "CPU ranks have them in host memory as it is" in message
    assert not (alone / "invalid" / RESULT_NAME).exists()
