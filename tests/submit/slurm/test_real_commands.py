"""What a real Slurm says of jobs, without accounting."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from meshfit.cluster.catalogue import accelerator
from meshfit.errors import RunError
from meshfit.submit.batch_job import BatchJob, JobState
from meshfit.submit.slurm.commands import GONE, Slurm

pytestmark = pytest.mark.slurm

PATIENCE_S = 60.0


@pytest.fixture
def scheduler(slurm: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    monkeypatch.setenv("SLURM_CONF", str(slurm))
    return Slurm({"time": "5"})


@pytest.fixture
def submit(scheduler: Slurm, tmp_path: Path) -> Callable[..., str]:
    """Submits a shell line; the id of its job."""

    def submitted(line: str, **change: object) -> str:
        job = BatchJob(
            name="a name of words",
            mark=f"mark-{time.monotonic_ns()}",
            command=("bash", "-c", line),
            folder=tmp_path,
            log=tmp_path / "job.log",
            num_nodes=1,
            devices_per_node=1,
            accelerator=replace(accelerator("H100"), device_type="cpu"),
        )
        name, text = scheduler.script(replace(job, **change))
        (tmp_path / name).write_text(text)
        return scheduler.submit(tmp_path / name)

    return submitted


def end_of(scheduler: Slurm, job_id: str) -> JobState:
    until_s = time.monotonic() + PATIENCE_S
    while (state := scheduler.states([job_id])[job_id]).phase != "ended":
        assert time.monotonic() < until_s, state
        time.sleep(0.2)
    return state


def wait_for(scheduler: Slurm, job_id: str, word: str) -> None:
    until_s = time.monotonic() + PATIENCE_S
    while scheduler.states([job_id])[job_id].word != word:
        assert time.monotonic() < until_s
        time.sleep(0.2)


@pytest.mark.parametrize(
    ("line", "shown", "well"),
    [
        ("exit 0", "COMPLETED", True),
        ("exit 3", "FAILED (exit code 3)", False),
        ("kill -9 $$", "FAILED (signal 9)", False),
    ],
)
def test_how_a_script_ended(scheduler, submit, line, shown, well):
    state = end_of(scheduler, submit(line))
    assert (str(state), state.ended_well) == (shown, well)


def test_a_cancelled_job_is_seen_and_was_found_by_its_mark(scheduler, submit):
    job_id = submit("exec sleep 60", mark="the-mark")
    wait_for(scheduler, job_id, "RUNNING")
    assert scheduler.find("the-mark") == job_id
    scheduler.cancel([job_id])
    state = end_of(scheduler, job_id)
    assert (state.word, state.outcome) == ("CANCELLED", "interrupted")


def test_a_job_that_rests_on_a_failed_one_is_cancelled(scheduler, submit):
    first = submit("exit 1")
    state = end_of(scheduler, submit("exit 0", after=(first,)))
    assert str(state) == "CANCELLED (DependencyNeverSatisfied)"


def test_jobs_of_a_lane_run_one_after_another(scheduler, submit, tmp_path):
    first = submit(f"sleep 2; date +%s.%N > {tmp_path}/first", lane="lane")
    second = submit(f"date +%s.%N > {tmp_path}/second", lane="lane")
    assert end_of(scheduler, second).ended_well
    assert end_of(scheduler, first).ended_well
    ended, began = (float((tmp_path / name).read_text()) for name in ("first", "second"))
    assert began > ended


def test_a_log_is_where_it_is_to_be_whatever_its_folder_is_called(scheduler, submit, tmp_path):
    log = tmp_path / "50% of j%j it's" / "job.log"
    log.parent.mkdir()
    assert end_of(scheduler, submit("echo said", log=log, name='a "b" $(c)\nd')).ended_well
    assert log.read_text() == "said\n"


def test_hosts_are_had_by_name(scheduler, submit, tmp_path):
    job_id = submit(f"echo $SLURMD_NODENAME > {tmp_path}/node", hosts=("n2",))
    assert end_of(scheduler, job_id).ended_well
    assert (tmp_path / "node").read_text().strip() == "n2"


def test_a_job_that_nobody_knows_has_ended_and_a_wrong_option_is_refused(scheduler, submit):
    assert scheduler.states(["99999"]) == {"99999": GONE}
    with pytest.raises(RunError, match="sbatch refused"):
        submit("true", hosts=("n7",))
