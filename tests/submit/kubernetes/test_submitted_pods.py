"""A sweep through kubectl, pods and errands, where a pod is a process of this machine."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from meshfit.record.store import RecordStore
from tests.processes import marked_processes
from tests.submit.cluster_job import CATALOGUE, write_cluster_job

pytestmark = [pytest.mark.dist, pytest.mark.heavy, pytest.mark.usefixtures("kubectl")]


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    programs = tmp_path / "programs"
    programs.mkdir()
    text = Path(__file__).with_name("kubectl_here.py").read_text()
    (programs / "kubectl").write_text(text.replace("/usr/bin/env python", sys.executable))
    (programs / "kubectl").chmod(0o755)
    python = Path(sys.executable).parent
    monkeypatch.setenv("PATH", f"{programs}:{python}:/usr/bin:/bin")
    (tmp_path / "catalogue.yaml").write_text(CATALOGUE)
    monkeypatch.setenv("MESHFIT_CATALOGUE", str(tmp_path / "catalogue.yaml"))
    with marked_processes(monkeypatch, tmp_path):
        yield


def test_pods_do_the_launches_of_a_sweep_and_leave(tmp_path: Path) -> None:
    job = write_cluster_job(tmp_path, "run: {repeats: 1, steps: 6, warmup: 1}\ncalibration: none\n")
    options = ["--submit", "kubernetes", "--with", f"volume=runs:{tmp_path}"]
    command = [sys.executable, "-m", "meshfit.cli.main", "run", str(job), "--layout", "dp_shard=2"]
    done = subprocess.run(
        [*command, "--out", "out", "--json", *options],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    logs = [path.read_text() for path in tmp_path.glob("out/jobs/*/job.log")]
    assert done.returncode == 0, (done.stderr, logs)
    assert json.loads(done.stdout)["winner"]["layout"]["dp_shard"] == 2
    row = RecordStore(tmp_path / "out").records()[-1]
    assert row.result is not None
    assert row.parity is not None
    assert [rank.host for rank in row.result.ranks] == ["pod0", "pod1"]
    assert row.parity.ok
    assert ": Complete" in done.stderr
