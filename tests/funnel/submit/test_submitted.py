"""Sweeps in jobs of a scheduler that runs each at once, in this process, or ends it as it is told."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from meshfit.errors import InputError, RunError
from meshfit.funnel.submit import part, submitted
from meshfit.funnel.submit.submitted import Submitted
from meshfit.funnel.submit.submitting import SubmitOptions
from meshfit.funnel.sweep import sweep
from meshfit.funnel.sweep.folder import RunFolder
from meshfit.funnel.sweep.sweep_plan import make_sweep_plan, plan_hash
from meshfit.funnel.sweep.tasks import TaskList
from meshfit.launch.supervise import LaunchOutcome
from meshfit.record.files import write_json_atomically
from meshfit.record.schema import Failure
from meshfit.record.store import RecordStore
from meshfit.record.submission import PartFolder
from meshfit.submit import nodes
from meshfit.submit.batch_job import JobState
from tests.funnel.small_job import DDP, FSDP2, read_small_cluster_job, result

WAITING = JobState(phase="waiting", word="PENDING", why="Resources")
RUNNING = JobState(phase="running", word="RUNNING")
COMPLETED = JobState(phase="ended", word="COMPLETED", ended_well=True)
CANCELLED = JobState(phase="ended", word="CANCELLED")
NEVER_SATISFIED = JobState(phase="ended", word="CANCELLED", why="DependencyNeverSatisfied")
FAILED = JobState(phase="ended", word="FAILED", why="signal 9", outcome="crash")

RUN = "run: {repeats: 2, steps: 6, warmup: 1}\n"


class Cluster:
    """A scheduler. A job runs to its end when its state is asked for the second time.

    ``ends`` says, by candidate or purpose, how a job ends instead when it comes to that launch, or
    how the launch ends; ``never_starts`` has the candidates whose jobs are cancelled before that.
    """

    name = "Slurm"

    def __init__(self):
        self.ends = {}
        self.never_starts = set()
        self.batches = []
        self.launched = []
        self.cancelled = []
        self.interrupts_at = None
        self._asked = {}
        self._state = {}

    def script(self, job):
        self.batches.append(job)
        return "job.sbatch", job.mark

    def submit(self, script: Path):
        job_id = str(len(self._asked) + 1)
        self._asked[job_id] = 0
        self._state[job_id] = (WAITING, PartFolder(script.parent), script.read_text())
        return job_id

    def find(self, mark):
        return next((i for i, (_, _, text) in self._state.items() if text == mark), None)

    def states(self, ids):
        if self.interrupts_at in ids:
            raise KeyboardInterrupt
        for job_id in ids:
            if (blocked := self._rests_on(job_id)) is not None:
                self._set(job_id, blocked)
                continue
            self._asked[job_id] += 1
            if self._asked[job_id] == 2:
                self._set(job_id, self._run(self._state[job_id][1]))
        return {job_id: self._state[job_id][0] for job_id in ids}

    def _rests_on(self, job_id):
        """Its state, while or because another job has not ended well."""
        before = [self._state[other][0] for other in self.batches[int(job_id) - 1].after]
        if all(state.ended_well for state in before):
            return None
        ended = any(state.phase == "ended" for state in before)
        return NEVER_SATISFIED if ended else WAITING

    def _set(self, job_id, state):
        self._state[job_id] = (state, *self._state[job_id][1:])

    def cancel(self, ids):
        self.cancelled += ids

    def cancel_line(self, ids):
        return f"scancel {' '.join(ids)}"

    def _run(self, files):
        tasks = json.loads(files.part.read_text())["tasks"]
        if any(candidate in self.never_starts for _, candidate, _ in tasks):
            return CANCELLED
        try:
            part.run_part(files, Console(file=io.StringIO()))
        except EndedBy as end:
            return end.state
        except RunError as error:
            files.log.write_text(f"error: {error}\n")
            return JobState(phase="ended", word="FAILED", why="exit code 3", outcome="crash")
        return COMPLETED

    def launch(self, request, folder, **_options):
        self.launched.append((request.purpose, request.candidate, request.repeat))
        end = self.ends.get(request.candidate) or self.ends.get(request.purpose) or "ok"
        if isinstance(end, JobState):
            raise EndedBy(end)
        if end != "ok":
            return LaunchOutcome(outcome=end, failure=Failure(message="why"), seconds=1.0)
        where = Path(request.weights) if request.purpose == "weights" else folder
        where.mkdir(parents=True, exist_ok=True)
        (where / "model.safetensors").touch()
        return LaunchOutcome(outcome="ok", failure=None, seconds=1.0, result=result())


class EndedBy(BaseException):
    """The job's processes are gone, as if killed."""

    def __init__(self, state):
        super().__init__(str(state))
        self.state = state


@pytest.fixture
def cluster(monkeypatch):
    made = Cluster()
    monkeypatch.setattr(sweep, "launch", made.launch)
    monkeypatch.setattr(nodes, "allocated_nodes", lambda wanted: ("n1", "n2"))
    monkeypatch.setattr(nodes, "allocated_hosts", lambda names, topology: ())
    monkeypatch.setattr(submitted, "_POLL_S", 0.0)
    return made


class Sweep:
    """A sweep of two layouts of the small job, submitted as often as ``go`` is called."""

    def __init__(self, cluster, folder):
        self.cluster = cluster
        self.path = folder / "job.yaml"
        self.job = read_small_cluster_job(folder, RUN)
        self.folder = RunFolder(folder / "out")
        self.key = plan_hash(self.job, only=[DDP, FSDP2])
        self.plan = make_sweep_plan(self.job, self.key, [DDP, FSDP2], {})
        write_json_atomically(self.folder.plan, self.plan)
        self.said = ""

    def go(self, **options):
        console = Console(file=io.StringIO(), width=500)
        runner = Submitted(
            self.cluster, SubmitOptions(job_file=self.path, given_layouts=True, **options)
        )
        runner.placed(self.job)
        self.cluster.launched.clear()
        tasks = list(TaskList(self.job, self.plan, self.folder))
        try:
            return runner.run(self.job, tasks, folder=self.folder, console=console)
        finally:
            self.said = console.file.getvalue()

    def outcomes(self):
        rows = RecordStore(self.folder.root).records(self.key)
        return {
            (row.candidate, row.repeat): row.outcome for row in rows if row.purpose == "measure"
        }


@pytest.fixture
def sweep_of_two(cluster, tmp_path):
    return Sweep(cluster, tmp_path)


ALL = {
    (DDP.label, 0): "ok",
    (FSDP2.label, 0): "ok",
    (DDP.label, 1): "ok",
    (FSDP2.label, 1): "ok",
}


def test_one_job_does_all_launches_on_the_same_nodes(cluster, sweep_of_two):
    end = sweep_of_two.go()
    [batch] = cluster.batches
    assert (batch.num_nodes, batch.devices_per_node, batch.accelerator.device_type) == (
        2,
        1,
        "cuda",
    )
    assert cluster.launched[2:] == [("measure", *key) for key in ALL]
    assert sweep_of_two.outcomes() == ALL
    assert end.not_run == ()
    assert [row.parity.ok for row in end.records if row.purpose == "measure"] == [True] * 4
    said = [line for line in sweep_of_two.said.splitlines() if line.startswith("Slurm")]
    assert said == ["Slurm job 1: PENDING (Resources)", "Slurm job 1: COMPLETED"]


def test_one_job_each_rests_on_that_of_weights_and_reference(cluster, sweep_of_two):
    end = sweep_of_two.go(each=True)
    ground, *candidates = cluster.batches
    assert (ground.num_nodes, ground.after) == (1, ())
    assert [(job.num_nodes, job.after, job.lane) for job in candidates] == [(2, ("1",), None)] * 2
    assert sweep_of_two.outcomes() == ALL
    assert [row.parity.ok for row in end.records if row.purpose == "measure"] == [True] * 4


def test_jobs_share_as_many_lanes_as_nodes_allow(cluster, sweep_of_two):
    sweep_of_two.go(each=True, max_nodes=3)
    assert len({job.lane for job in cluster.batches}) == 1
    with pytest.raises(InputError, match="every layout of this job fills 2 nodes"):
        sweep_of_two.go(max_nodes=1)


def test_a_finished_sweep_submits_nothing_again(cluster, sweep_of_two):
    first = sweep_of_two.go()
    again = sweep_of_two.go()
    assert len(cluster.batches) == 1
    assert again == first


def test_a_launch_that_fails_is_a_row_like_on_one_machine(cluster, sweep_of_two):
    cluster.ends = {DDP.label: "out_of_memory"}
    end = sweep_of_two.go()
    assert sweep_of_two.outcomes()[DDP.label, 0] == "out_of_memory"
    assert end.not_run == ()


def test_a_job_that_is_killed_shows_as_a_row_of_the_launch_it_was_at(cluster, sweep_of_two):
    cluster.ends = {FSDP2.label: CANCELLED}
    end = sweep_of_two.go(each=True)
    killed = [row for row in end.records if row.candidate == FSDP2.label]
    assert [(row.outcome, row.repeat) for row in killed] == [("interrupted", 0)]
    assert killed[0].failure.message == "Slurm job 3 ended: CANCELLED"
    assert killed[0].folder == f"candidates/{FSDP2.slug}/repeat-0"
    assert killed[0].prediction is not None
    assert [row.outcome for row in end.records if row.candidate == DDP.label] == ["ok", "ok"]
    assert len(end.not_run) == 2
    assert end.stopped_by == "the end of Slurm job 3: CANCELLED"


def test_what_a_scheduler_interrupted_is_run_again_and_its_row_makes_place(cluster, sweep_of_two):
    cluster.ends = {FSDP2.label: CANCELLED}
    sweep_of_two.go()
    cluster.ends = {}
    end = sweep_of_two.go()
    assert ("measure", FSDP2.label, 0) in cluster.launched
    assert ("measure", DDP.label, 0) not in cluster.launched
    assert [row.outcome for row in end.records if row.purpose == "measure"] == ["ok"] * 4
    assert end.not_run == ()


def test_processes_that_were_killed_are_a_crash_which_is_not_tried_again(cluster, sweep_of_two):
    cluster.ends = {FSDP2.label: FAILED}
    end = sweep_of_two.go()
    row = next(row for row in end.records if row.candidate == FSDP2.label)
    assert (row.outcome, row.failure.message) == ("crash", "Slurm job 1 ended: FAILED (signal 9)")
    cluster.ends = {}
    end = sweep_of_two.go()
    assert FSDP2.label not in [candidate for _, candidate, _ in cluster.launched]
    assert end.not_run == ()


def test_a_candidates_job_that_never_started_shows_as_a_row(cluster, sweep_of_two):
    cluster.never_starts = {DDP.label}
    end = sweep_of_two.go(each=True)
    row = next(row for row in end.records if row.candidate == DDP.label)
    assert row.outcome == "interrupted"
    assert row.failure.message == "Slurm job 2 ended outside any launch: CANCELLED"


def test_a_job_of_everything_that_never_started_is_an_error(cluster, sweep_of_two):
    cluster.never_starts = {DDP.label}
    with pytest.raises(RunError, match="nothing was measured: the end of Slurm job 1: CANCELLED"):
        sweep_of_two.go()
    cluster.never_starts = set()
    sweep_of_two.go()
    assert sweep_of_two.outcomes() == ALL


@pytest.mark.parametrize("purpose", ["weights", "reference"])
@pytest.mark.parametrize("end", ["launch_error", CANCELLED])
def test_jobs_that_rest_on_what_failed_are_cancelled_and_no_rows(
    cluster, sweep_of_two, purpose, end
):
    cluster.ends = {purpose: end}
    with pytest.raises(RunError, match="run the same command again"):
        sweep_of_two.go(each=True)
    assert {"2", "3"} <= set(cluster.cancelled)
    assert sweep_of_two.outcomes() == {}
    cluster.ends = {}
    sweep_of_two.go(each=True)
    assert sweep_of_two.outcomes() == ALL


def test_ctrl_c_leaves_the_jobs_and_the_same_command_goes_on_with_them(cluster, sweep_of_two):
    cluster.interrupts_at = "1"
    with pytest.raises(KeyboardInterrupt):
        sweep_of_two.go()
    assert "Slurm job 1 goes on without this command" in sweep_of_two.said
    assert "`scancel 1` ends it" in sweep_of_two.said
    cluster.interrupts_at = None
    sweep_of_two.go()
    assert len(cluster.batches) == 1
    assert cluster.cancelled == []
    assert sweep_of_two.outcomes() == ALL


def test_a_job_whose_id_was_not_noted_is_found_by_its_mark(cluster, sweep_of_two):
    cluster.interrupts_at = "1"
    with pytest.raises(KeyboardInterrupt):
        sweep_of_two.go()
    (sweep_of_two.folder.root / "jobs" / "1" / "submitted.json").unlink()
    cluster.interrupts_at = None
    sweep_of_two.go()
    assert len(cluster.batches) == 1
    assert sweep_of_two.outcomes() == ALL


def test_what_a_forgotten_job_did_is_gathered_and_not_done_again(cluster, sweep_of_two):
    cluster.interrupts_at = "1"
    with pytest.raises(KeyboardInterrupt):
        sweep_of_two.go()
    folder = PartFolder(sweep_of_two.folder.root / "jobs" / "1")
    cluster.ends = {FSDP2.label: CANCELLED}
    with pytest.raises(EndedBy):
        part.run_part(folder, Console(file=io.StringIO()))
    folder.submission.unlink()
    cluster.find = lambda mark: None
    cluster.interrupts_at, cluster.ends = None, {}
    sweep_of_two.go()
    assert folder.end.exists()
    assert ("measure", DDP.label, 0) not in cluster.launched
    assert sweep_of_two.outcomes() == ALL


def test_nothing_is_submitted_while_it_is_not_known_whether_a_job_is_there(cluster, sweep_of_two):
    cluster.interrupts_at = "1"
    with pytest.raises(KeyboardInterrupt):
        sweep_of_two.go()
    (sweep_of_two.folder.root / "jobs" / "1" / "submitted.json").unlink()

    def no_answer(mark):
        raise RunError("squeue does not say")

    cluster.find = no_answer
    with pytest.raises(RunError, match="squeue does not say"):
        sweep_of_two.go()
    assert len(cluster.batches) == 1


def test_a_job_file_that_was_changed_meanwhile_is_not_run(cluster, sweep_of_two):
    sweep_of_two.path.write_text(sweep_of_two.path.read_text().replace("steps: 6", "steps: 7"))
    with pytest.raises(InputError, match="is not what was submitted any more"):
        sweep_of_two.go()


def test_jobs_of_another_scheduler_are_not_taken_for_ones_own(cluster, sweep_of_two):
    cluster.interrupts_at = "1"
    with pytest.raises(KeyboardInterrupt):
        sweep_of_two.go()
    cluster.name = "Kubernetes"
    with pytest.raises(InputError, match="go on with it by --submit slurm"):
        sweep_of_two.go()


def test_a_cluster_that_is_this_machine_is_not_submitted(cluster, sweep_of_two, tmp_path):
    from tests.funnel.small_job import read_small_job

    runner = Submitted(cluster, SubmitOptions(job_file=sweep_of_two.path))
    with pytest.raises(InputError, match="as in `cluster: 2x8 H100-SXM`"):
        runner.placed(read_small_job(tmp_path / "other"))


def test_a_launch_whose_row_came_just_before_its_job_was_ended_is_not_interrupted(
    cluster, sweep_of_two, monkeypatch
):
    def ended(progress, task, row):
        if task.is_candidate:
            raise EndedBy(CANCELLED)

    monkeypatch.setattr(part.PartProgress, "finish", ended)
    end = sweep_of_two.go()
    assert [row.outcome for row in end.records if row.purpose == "measure"] == ["ok"]
    assert len(end.not_run) == 3
