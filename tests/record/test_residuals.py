import json
from dataclasses import replace

import pytest

from meshfit.errors import InputError
from meshfit.mesh.spec import LayoutSpec
from meshfit.record.residuals import default_calibration_path, read_residuals, store_residuals
from meshfit.record.schema import Residual
from tests.predict.builders import cluster, training

ROW = Residual(
    recorded_at="2026-01-02T03:04:05+00:00",
    meshfit="0.1.0",
    plan_hash="plan",
    model="small",
    model_config={"model_type": "llama", "hidden_size": 32},
    training=training(),
    topology=cluster(),
    engine="native",
    engine_version="1",
    layout=LayoutSpec(tp=2, sp=True, stage_layers=(2, 2)),
    predicted_terms={"compute": 1.0, "all_gather.tp": 0.5},
    predicted_memory_bytes=100,
    measured_step_s=2.0,
    measured_memory_bytes=None,
    timed_steps=10,
    software={"torch": "2.13.0"},
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "new" / "calibration.jsonl"


def test_rows_survive_the_file(path):
    assert store_residuals(path, [ROW]) == 1
    assert read_residuals(path).rows == (ROW,)


def test_every_line_carries_its_schema_and_date(path):
    store_residuals(path, [ROW])
    (line,) = path.read_text().splitlines()
    document = json.loads(line)
    assert (document["schema_version"], document["recorded_at"]) == (1, ROW.recorded_at)


def test_nothing_is_lost_and_nothing_is_there_twice(path):
    store_residuals(path, [ROW])
    other = replace(ROW, layout=LayoutSpec(tp=4, sp=True))
    assert store_residuals(path, [ROW, other]) == 1
    assert store_residuals(path, [replace(ROW, plan_hash="later")]) == 1
    assert [row.plan_hash for row in read_residuals(path).rows] == ["plan", "plan", "later"]


def test_a_file_that_is_not_there_has_no_rows(path):
    assert read_residuals(path).rows == ()


def test_lines_of_another_version_are_counted_and_stay(path):
    store_residuals(path, [ROW])
    future = json.loads(path.read_text()) | {"schema_version": 2}
    with path.open("a") as file:
        file.write(json.dumps(future) + "\n")
    store_residuals(path, [replace(ROW, plan_hash="later")])
    read = read_residuals(path)
    assert (len(read.rows), sum(read.unreadable.values())) == (2, 1)
    assert json.dumps(future) in path.read_text()


def test_a_half_written_line_is_no_row(path):
    store_residuals(path, [ROW])
    with path.open("ab") as file:
        file.write(b'{"schema_version": 1, "recor')
    assert read_residuals(path).rows == (ROW,)
    store_residuals(path, [replace(ROW, plan_hash="later")])
    assert len(read_residuals(path).rows) == 2


def test_another_file_is_refused_and_left_as_it_is(path):
    path.parent.mkdir()
    path.write_text("schema_version: 1\nmodel: llama-3.1-8b\n")
    for use in (read_residuals, lambda path: store_residuals(path, [ROW])):
        with pytest.raises(InputError, match=r"no calibration file: not one of its 2 lines"):
            use(path)
    assert path.read_text() == "schema_version: 1\nmodel: llama-3.1-8b\n"


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        read_residuals(tmp_path)


def test_the_person_s_file_lies_beside_their_catalogue(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert default_calibration_path() == tmp_path / "meshfit" / "calibration.jsonl"
    monkeypatch.setenv("MESHFIT_CATALOGUE", str(tmp_path / "own" / "catalogue.yaml"))
    assert default_calibration_path() == tmp_path / "own" / "calibration.jsonl"
