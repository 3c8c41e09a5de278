import json
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from meshfit.errors import InputError
from meshfit.record.schema import Record
from meshfit.record.store import RecordStore

MakeRecord = Callable[..., Record]


@pytest.fixture
def store(tmp_path: Path) -> RecordStore:
    return RecordStore(tmp_path / "run")


def test_a_folder_without_results_has_no_records(store: RecordStore) -> None:
    assert store.records() == []


def test_records_come_back_in_the_order_they_were_appended(
    store: RecordStore, make_record: MakeRecord
) -> None:
    rows = [make_record(repeat=repeat) for repeat in range(3)]
    for row in rows:
        store.append(row)
    assert store.records() == rows


def test_records_of_another_plan_are_left_out(store: RecordStore, make_record: MakeRecord) -> None:
    mine, other = make_record(plan_hash="mine"), make_record(plan_hash="other")
    store.append(mine)
    store.append(other)
    assert store.records("mine") == [mine]


@pytest.mark.parametrize("kept_bytes", [1, 40, -1])
def test_a_line_cut_anywhere_is_no_record_and_the_next_append_mends_the_file(
    store: RecordStore, make_record: MakeRecord, caplog: pytest.LogCaptureFixture, kept_bytes: int
) -> None:
    first, torn, after = (make_record(repeat=repeat) for repeat in range(3))
    store.append(first)
    whole = store.path.read_bytes()
    store.append(torn)
    line = store.path.read_bytes()[len(whole) :]
    store.path.write_bytes(whole + line[:kept_bytes])

    with caplog.at_level(logging.WARNING):
        assert store.records() == [first]
    assert "half-written line" in caplog.text
    store.append(after)
    assert store.records() == [first, after]


def test_a_torn_first_line_is_cut_off(store: RecordStore, make_record: MakeRecord) -> None:
    store.path.parent.mkdir()
    store.path.write_bytes(b'{"schema_version":1,"plan')
    store.append(make_record())
    assert store.records() == [make_record()]


def test_a_broken_line_inside_the_file_is_refused_by_its_number(
    store: RecordStore, make_record: MakeRecord
) -> None:
    store.append(make_record())
    with store.path.open("a") as file:
        file.write("not json\n")
    store.append(make_record())
    with pytest.raises(
        InputError, match=r"results\.jsonl, line 2, is not JSON: expected.*run again"
    ):
        store.records()


def test_a_line_of_a_newer_schema_is_refused_with_the_reason(
    store: RecordStore, make_record: MakeRecord
) -> None:
    store.append(make_record())
    newer = json.loads(store.path.read_text()) | {"schema_version": 2}
    with store.path.open("a") as file:
        file.write(json.dumps(newer) + "\n")
    with pytest.raises(InputError, match="line 2, has schema_version 2, this meshfit reads 1"):
        store.records()
