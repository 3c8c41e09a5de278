import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import PydanticSerializationError

from meshfit.errors import InputError
from meshfit.mesh.spec import LayoutSpec
from meshfit.record import files
from meshfit.record.schema import SCHEMA_VERSION, Record, RunRequest, RunResult
from meshfit.workload.training import PRECISIONS, TrainingSpec

texts = st.text(max_size=20)
counts = st.integers(min_value=0, max_value=2**63)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
json_objects = st.dictionaries(texts, json_values, max_size=4)

layouts = st.builds(
    LayoutSpec,
    dp_shard=st.integers(1, 64),
    sp=st.booleans(),
    cp_method=st.none() | st.just("ring"),
    stage_layers=st.none() | st.lists(st.integers(1, 9), min_size=1, max_size=4).map(tuple),
)
training = st.builds(
    TrainingSpec,
    sequence_length=st.integers(1, 2**20),
    global_batch_size=st.integers(1, 4096),
    precision=st.sampled_from(list(PRECISIONS.values())),
    max_grad_norm=st.none() | st.floats(0, 10),
)
requests = st.builds(RunRequest, model_config=json_objects, layout=layouts, training=training)
results = st.builds(
    RunResult,
    losses=st.lists(st.floats(), max_size=4).map(tuple),
    gradient_norms=st.lists(st.floats(), max_size=4).map(tuple),
    useful_tokens_per_step=counts,
    environment=json_objects,
)
records = st.builds(Record, layout=layouts, result=st.none() | results)


def make_result(**changes: object) -> RunResult:
    values = {"losses": (), "gradient_norms": (), "useful_tokens_per_step": 0, "ranks": ()}
    return RunResult(**(values | changes))


def write(path: Path, document: object) -> Path:
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


# repr, because a NaN equals nothing, itself included.
@given(records)
def test_a_record_survives_a_round_trip(record: Record) -> None:
    decoded = files.decode(Record, files.encode(record), where="here")
    assert repr(decoded) == repr(record)


@given(requests)
def test_a_request_survives_a_round_trip(request_: RunRequest) -> None:
    decoded = files.decode(RunRequest, files.encode(request_), where="here")
    assert repr(decoded) == repr(request_)


def test_losses_that_are_no_numbers_survive_a_file(tmp_path: Path) -> None:
    result = make_result(losses=(math.nan, math.inf, -math.inf, -0.0))
    files.write_json_atomically(tmp_path / "result.json", result)
    assert repr(files.read_document(RunResult, tmp_path / "result.json")) == repr(result)


def test_python_reads_the_file_with_its_own_json_module(tmp_path: Path) -> None:
    files.write_json_atomically(tmp_path / "result.json", make_result(losses=(math.inf,)))
    assert json.loads((tmp_path / "result.json").read_text())["losses"] == [math.inf]


def test_an_encoded_record_is_one_line() -> None:
    assert b"\n" not in files.encode({"message": "two\nlines"})


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"result\.json cannot be read: No such file"):
        files.read_document(RunResult, tmp_path / "result.json")


def test_a_half_written_file_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "result.json", '{"schema_version": 1, "losses": [1.0')
    with pytest.raises(InputError, match=r"result\.json is not JSON: EOF"):
        files.read_document(RunResult, path)


def test_a_newer_schema_is_refused_with_both_versions(tmp_path: Path) -> None:
    document = asdict(make_result()) | {"schema_version": SCHEMA_VERSION + 1}
    path = write(tmp_path / "result.json", document)
    with pytest.raises(InputError, match="has schema_version 2, this meshfit reads 1: update"):
        files.read_document(RunResult, path)


@pytest.mark.parametrize("document", [{"losses": []}, [1], 3, None])
def test_a_file_without_a_schema_version_is_refused(tmp_path: Path, document: object) -> None:
    with pytest.raises(InputError, match=r"result\.json is not a RunResult: it "):
        files.read_document(RunResult, write(tmp_path / "result.json", document))


def test_an_unknown_nested_key_is_refused_by_its_path(tmp_path: Path) -> None:
    rank = {"rank": 0, "host": "h", "step_s": [], "input_wait_s": [], "memory": {"gradient": 1}}
    path = write(tmp_path / "result.json", asdict(make_result()) | {"ranks": [rank]})
    with pytest.raises(InputError, match=r"ranks\.0\.memory\.gradient: Unexpected"):
        files.read_document(RunResult, path)


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    files.write_json_atomically(path, {"old": True})
    with pytest.raises(PydanticSerializationError):
        files.write_json_atomically(path, {"new": object()})
    assert json.loads(path.read_text()) == {"old": True}
    assert list(tmp_path.iterdir()) == [path]
