import json

import pytest

from meshfit.errors import InputError
from meshfit.funnel.plan.timeline import write_timeline
from meshfit.funnel.space.planning import estimate_candidates
from meshfit.job.read import read_job
from meshfit.mesh.candidates import Candidates
from meshfit.mesh.spec import LayoutSpec, make_layout

JOB = """
schema_version: 1
model: llama-3.1-8b
workload: {kind: training, sequence_length: 4096, global_batch: 64 sequences}
cluster: 2x8 H100-SXM
"""


@pytest.fixture
def job(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    return read_job(path, to_run=False)


def test_a_timeline_ends_when_the_step_is_predicted_to(job, tmp_path):
    layout = make_layout({"pp": 2, "tp": 4, "dp_shard": 2})
    path = tmp_path / "step.json"
    write_timeline(job, layout, path)
    events = json.loads(path.read_text())["traceEvents"]
    end_s = max(one["ts"] + one["dur"] for one in events if one["ph"] == "X") / 1e6
    estimates, _ = estimate_candidates(job, Candidates.from_layouts([layout]))
    time = estimates.prediction(0).time
    assert end_s == pytest.approx(time.step - (time.other or 0.0))


def test_a_file_that_cannot_be_written_is_one_message(job, tmp_path):
    with pytest.raises(InputError, match=r"cannot write the timeline to .*: Is a directory"):
        write_timeline(job, LayoutSpec(dp_shard=16, zero_stage=3), tmp_path)
