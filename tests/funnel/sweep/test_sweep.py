"""Sweeps whose launches are told how to end: what runs, in which order, and what a resume repeats."""

import io
import shutil
from pathlib import Path

import pytest
from rich.console import Console

from meshfit.errors import RunError
from meshfit.funnel.sweep import sweep
from meshfit.funnel.sweep.folder import RunFolder
from meshfit.funnel.sweep.progress import Progress
from meshfit.funnel.sweep.sweep import left_to_run, run_sweep
from meshfit.funnel.sweep.sweep_plan import make_sweep_plan
from meshfit.funnel.sweep.tasks import TaskList
from meshfit.launch.supervise import LaunchOutcome
from meshfit.mesh.spec import make_layout
from meshfit.record.schema import Failure
from meshfit.record.store import RecordStore
from tests.funnel.small_job import DDP, FSDP2, read_small_job, result

UNEVEN = make_layout({"pp": 2, "stage_layers": [3, 1], "schedule": "gpipe"})


class Machine:
    """Stands where launches would be: every one ends as ``ends`` says, by purpose or candidate."""

    def __init__(self, monkeypatch, folder):
        self.ends = {}
        self.launched = []
        self.folder = RunFolder(folder)
        monkeypatch.setattr(sweep, "launch", self._launch)

    def _launch(self, request, folder, **_options):
        self.launched.append((request.purpose, request.candidate, request.repeat))
        outcome = self.ends.get(request.purpose) or self.ends.get(request.candidate) or "ok"
        if outcome == "ok":
            self._write_tensors(request, folder)
            return LaunchOutcome(outcome="ok", failure=None, seconds=1.0, result=result())
        if isinstance(outcome, float):
            found = result(loss=outcome)
            return LaunchOutcome(outcome="ok", failure=None, seconds=1.0, result=found)
        return LaunchOutcome(outcome=outcome, failure=Failure(message="why"), seconds=1.0)

    def _write_tensors(self, request, folder):
        """What other launches read of those they rest on."""
        where = Path(request.weights) if request.purpose == "weights" else folder
        where.mkdir(parents=True, exist_ok=True)
        (where / "model.safetensors").touch()

    def sweep(self, job, layouts, key="k"):
        plan = make_sweep_plan(job, key, layouts, {})
        tasks = list(TaskList(job, plan, self.folder))
        self.launched.clear()
        self.console = Console(file=io.StringIO())
        return run_sweep(
            tasks, run=job.run, folder=self.folder, progress=Progress(self.console)
        ), tasks


@pytest.fixture
def machine(monkeypatch, tmp_path):
    return Machine(monkeypatch, tmp_path / "out")


@pytest.fixture
def job(tmp_path):
    return read_small_job(tmp_path, "run: {repeats: 2, steps: 6, warmup: 1}\n")


def test_repeats_are_interleaved_after_weights_and_reference(machine, job):
    machine.sweep(job, [DDP, FSDP2])
    assert machine.launched == [
        ("weights", "full", 0),
        ("reference", "full", 0),
        ("measure", DDP.label, 0),
        ("measure", FSDP2.label, 0),
        ("measure", DDP.label, 1),
        ("measure", FSDP2.label, 1),
    ]


def test_a_finished_sweep_runs_nothing_again(machine, job):
    first, _ = machine.sweep(job, [DDP])
    again, tasks = machine.sweep(job, [DDP])
    assert machine.launched == []
    assert again.records == first.records
    assert left_to_run(tasks, again.records) == []


def test_rows_of_another_plan_are_not_reused(machine, job):
    machine.sweep(job, [DDP])
    machine.sweep(job, [DDP], key="another")
    assert len(machine.launched) == 4


@pytest.mark.parametrize("purpose", ["weights", "reference"])
def test_what_every_launch_rests_on_is_tried_again_after_it_failed(machine, job, purpose):
    machine.ends = {purpose: "launch_error"}
    with pytest.raises(RunError, match="run the same command again"):
        machine.sweep(job, [DDP])
    machine.ends = {}
    end, _ = machine.sweep(job, [DDP])
    assert machine.launched[0] == (purpose, "full", 0)
    measured = [row for row in end.records if row.purpose == "measure"]
    assert [row.parity.ok for row in measured] == [True, True]


def test_a_layout_that_failed_is_a_result_and_is_not_tried_again(machine, job):
    machine.ends = {DDP.label: "out_of_memory"}
    machine.sweep(job, [DDP, FSDP2])
    assert [key for key in machine.launched if key[1] == DDP.label] == [("measure", DDP.label, 0)]
    machine.ends = {}
    machine.sweep(job, [DDP, FSDP2])
    assert machine.launched == []


def test_a_layout_with_other_losses_than_the_reference_has_failed_parity(machine, job):
    machine.ends = {FSDP2.label: 5.1}
    end, _ = machine.sweep(job, [DDP, FSDP2])
    outcomes = {row.candidate: row.outcome for row in end.records if row.purpose == "measure"}
    assert outcomes == {DDP.label: "ok", FSDP2.label: "parity_failed"}


def test_the_prediction_is_in_the_request_and_in_the_row(machine, job):
    end, tasks = machine.sweep(job, [DDP])
    measured = [task for task in tasks if task.request.purpose == "measure"]
    assert all(task.request.prediction is not None for task in measured)
    assert end.records[-1].prediction == measured[-1].request.prediction


def test_nothing_more_is_launched_once_the_budget_is_spent_and_a_larger_one_goes_on(
    machine, job, tmp_path
):
    spent = read_small_job(
        tmp_path, "run: {repeats: 2, steps: 6, warmup: 1, budget: 0.000001 rank-s}\n"
    )
    assert spent.identity == job.identity
    end, _ = machine.sweep(spent, [DDP])
    assert len(end.not_run) == 2
    assert [key[0] for key in machine.launched] == ["weights", "reference"]
    end, _ = machine.sweep(job, [DDP])
    assert end.not_run == ()
    assert [key[0] for key in machine.launched] == ["measure", "measure"]


def test_on_a_cut_model_gradients_are_judged_there_and_losses_against_the_plainest(
    machine, tmp_path
):
    job = read_small_job(tmp_path, "run: {parity: reduced, repeats: 1, steps: 6, warmup: 1}\n")
    end, tasks = machine.sweep(job, [UNEVEN, DDP])
    assert [key[:2] for key in machine.launched] == [
        ("weights", "full"),
        ("weights", "reduced"),
        ("reference", "reduced"),
        ("parity", UNEVEN.label),
        ("parity", DDP.label),
        ("measure", DDP.label),
        ("measure", UNEVEN.label),
    ]
    kinds = {
        (row.purpose, row.candidate): row.parity and row.parity.kind
        for row in end.records
        if row.purpose in ("parity", "measure")
    }
    assert kinds == {
        ("parity", UNEVEN.label): "reduced",
        ("parity", DDP.label): "reduced",
        ("measure", DDP.label): None,
        ("measure", UNEVEN.label): "reference",
    }
    cut = next(task.request for task in tasks if task.key[:2] == ("parity", UNEVEN.label))
    assert cut.layout.stage_layers is None
    assert {row.layout for row in end.records if row.candidate == UNEVEN.label} == {UNEVEN}


def test_a_layout_that_is_wrong_on_the_cut_model_is_not_measured(machine, tmp_path):
    job = read_small_job(tmp_path, "run: {parity: reduced, repeats: 1, steps: 6, warmup: 1}\n")
    machine.ends = {DDP.label: 5.1}
    end, _ = machine.sweep(job, [DDP, FSDP2])
    assert ("measure", DDP.label, 0) not in machine.launched
    plain = next(row for row in end.records if row.purpose == "measure")
    assert (plain.candidate, plain.parity) == (FSDP2.label, None)


def test_rows_are_on_disk_as_they_come(machine, job):
    end, _ = machine.sweep(job, [DDP])
    assert tuple(RecordStore(machine.folder.root).records("k")) == end.records


@pytest.mark.parametrize("purpose", ["weights", "reference"])
def test_what_candidates_rest_on_is_made_again_when_its_files_are_gone(machine, job, purpose):
    machine.sweep(job, [DDP])
    shutil.rmtree(machine.folder.root / purpose)
    _, tasks = machine.sweep(job, [DDP])
    assert machine.launched == [(purpose, "full", 0)]
    assert left_to_run(tasks, RecordStore(machine.folder.root).records()) == []
