"""Real launches of a stand-in worker: two Gloo ranks under torchrun, broken in every way.

Each takes some five seconds, nearly all of it importing torch.
"""

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from meshfit.errors import InputError
from meshfit.launch.orphans import end_orphans
from meshfit.launch.supervise import LaunchOutcome, launch
from meshfit.mesh.spec import LayoutSpec
from meshfit.record.files import read_document, write_json_atomically
from meshfit.record.heartbeat import Heartbeat, read_heartbeats
from meshfit.record.schema import RunRequest, RunResult
from meshfit.workload.training import PRECISIONS, TrainingSpec
from tests.processes import living, marked_processes

pytestmark = [pytest.mark.dist, pytest.mark.usefixtures("mark")]

NUM_RANKS = 2

PARENT = """
import sys
from pathlib import Path
from meshfit.launch.supervise import launch
from meshfit.record.files import read_document
from meshfit.record.schema import RunRequest

launch(
    read_document(RunRequest, Path(sys.argv[1])), Path(sys.argv[2]),
    deadline_s=300, hang_s=300, module="standin_worker",
)
"""


def make_request(candidate: str = "plain", **changes: object) -> RunRequest:
    values = {
        "plan_hash": "plan",
        "candidate": candidate,
        "purpose": "measure",
        "model_config": {},
        "weights": "",
        "layout": LayoutSpec(dp_replicate=NUM_RANKS),
        "training": TrainingSpec(
            sequence_length=1, global_batch_size=2, precision=PRECISIONS["fp32"]
        ),
        "device_type": "cpu",
        "steps": 3,
        "warmup_steps": 0,
    }
    return RunRequest(**(values | changes))


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Marks the test's processes, and makes sure that none is left when it ends."""
    with marked_processes(monkeypatch, Path(__file__).parent) as mark:
        yield mark


def run(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    fault: str = "",
    candidate: str = "plain",
    hang_s: float = 60,
) -> LaunchOutcome:
    monkeypatch.setenv("MESHFIT_FAULT", fault)
    request = make_request(candidate)
    return launch(request, folder, deadline_s=120, hang_s=hang_s, module="standin_worker")


def test_a_good_launch_leaves_its_request_its_result_and_its_outcome(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "result.json").write_text("of an attempt that was killed")
    seen: list[Mapping[int, Heartbeat]] = []
    request = make_request(threads_per_rank=2)

    ended = launch(
        request,
        folder,
        deadline_s=120,
        hang_s=60,
        on_progress=seen.append,
        module="standin_worker",
    )

    assert (ended.outcome, ended.failure) == ("ok", None)
    assert ended.result == read_document(RunResult, folder / "result.json")
    assert ended.result.losses == (3.0, 5.0, 7.0)
    assert ended.result.environment == {"OMP_NUM_THREADS": "2"}
    assert read_document(RunRequest, folder / "request.json") == request
    assert json.loads((folder / "outcome.json").read_text())["outcome"] == "ok"
    assert not (folder / "processes.json").exists()
    assert any(len(heartbeats) == NUM_RANKS for heartbeats in seen)
    assert [path.name for path in tmp_path.iterdir() if path != folder] == ["run.earlier-1"]


@pytest.mark.parametrize(
    ("fault", "outcome", "message"),
    [
        ("raise:rank=1:step=2", "crash", "InjectedFault: fault injected at rank 1"),
        ("kill:rank=1:step=2", "crash", "rank 1 was killed by signal 9 (SIGKILL)"),
        ("exit:rank=1:step=2", "crash", "rank 1 ended with exit code 7"),
        ("oom:rank=1:step=2", "out_of_memory", "DefaultCPUAllocator: can't allocate memory"),
        ("hang:rank=1:step=2", "hang", "rank 0 waits for others in phase train, step 2; rank 1 is"),
        pytest.param(
            "stall:rank=1:step=2",
            "hang",
            "rank 1 does not answer a signal: it is stopped",
            marks=pytest.mark.heavy,
        ),
    ],
)
def test_a_broken_rank_is_named_with_what_broke_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, outcome: str, message: str
) -> None:
    hang_s = 4 if outcome == "hang" else 60  # what ends by itself may take its time on a busy host
    ended = run(tmp_path / "run", monkeypatch, fault=fault, hang_s=hang_s)
    assert ended.failure is not None
    assert (ended.outcome, ended.failure.rank, ended.failure.phase) == (outcome, 1, "train")
    assert message in ended.failure.message
    assert ended.result is None
    if fault.startswith("hang"):
        assert "faults.py" in ended.failure.message, "the culprit's Python stack was not asked for"


def test_a_rank_that_leaves_early_is_to_blame(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = run(tmp_path / "run", monkeypatch, candidate="leaves early")
    assert ended.failure is not None
    assert (ended.outcome, ended.failure.rank) == ("crash", 1)
    assert "rank 1 ended without an error" in ended.failure.message


def test_a_worker_that_cannot_be_imported_is_an_error_of_launching(
    tmp_path: Path,
) -> None:
    ended = launch(make_request(), tmp_path / "run", deadline_s=60, hang_s=60, module="no_such")
    assert ended.outcome == "launch_error"
    assert ended.failure is not None
    assert "No module named no_such" in ended.failure.message


def test_a_port_in_use_is_an_error_of_launching_and_starts_nothing(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("localhost", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ended = launch(make_request(), tmp_path / "run", deadline_s=60, hang_s=60, port=port)
    assert ended.outcome == "launch_error"
    assert ended.failure is not None
    assert f"port {port} cannot be used: Address already in use" in ended.failure.message
    assert ended.seconds < 1


def test_a_deadline_before_any_rank_spoke_is_an_error_of_launching(
    tmp_path: Path,
) -> None:
    ended = launch(
        make_request(), tmp_path / "run", deadline_s=0.3, hang_s=60, module="standin_worker"
    )
    assert ended.outcome == "launch_error"
    assert ended.failure is not None
    assert "not done by the deadline of 300 ms; no rank reached" in ended.failure.message


def test_ctrl_c_ends_the_launch_and_its_children_and_marks_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mark: str
) -> None:
    monkeypatch.setenv("MESHFIT_FAULT", "hang:step=2")

    def interrupt(heartbeats: Mapping[int, Heartbeat]) -> None:
        if len(heartbeats) == NUM_RANKS and all(beat.step == 2 for beat in heartbeats.values()):
            raise KeyboardInterrupt

    folder = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        launch(
            make_request("has children"),
            folder,
            deadline_s=60,
            hang_s=60,
            on_progress=interrupt,
            module="standin_worker",
        )
    assert json.loads((folder / "outcome.json").read_text())["outcome"] == "interrupted"
    assert living(mark) == []
    with pytest.raises(InputError):
        read_document(RunResult, folder / "result.json")


def test_killing_the_supervisor_ends_every_rank_and_a_resume_ends_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mark: str
) -> None:
    """One rank stands still in Python, the other in a Gloo wait. Processes that the ranks started
    themselves have no lifeline; the next sweep finds and ends them."""
    monkeypatch.setenv("MESHFIT_FAULT", "hang:rank=1:step=2")
    write_json_atomically(tmp_path / "request.json", make_request("has children"))
    folder = tmp_path / "sweep" / "run"
    command = [sys.executable, "-c", PARENT, str(tmp_path / "request.json"), str(folder)]
    with subprocess.Popen(command) as parent:
        wait_for(lambda: steps(folder) == [2, 2], at_most_s=60)
        children = [p for p in living(mark) if "time.sleep(600)" in " ".join(p.cmdline())]
        assert len(children) == NUM_RANKS
        parent.send_signal(signal.SIGKILL)
    wait_for(lambda: set(living(mark)) == set(children), at_most_s=10)

    (ended,) = end_orphans(tmp_path / "sweep")
    assert ended.folder == folder
    assert set(ended.pids) == {child.pid for child in children}
    assert living(mark) == []


def steps(folder: Path) -> list[int]:
    return [beat.step for beat in read_heartbeats(folder).values()]


def wait_for(condition: Callable[[], bool], *, at_most_s: float) -> None:
    deadline = time.monotonic() + at_most_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)
