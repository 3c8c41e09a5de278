import json
import os
from pathlib import Path

import pytest

from meshfit.launch import evidence
from meshfit.launch.folder import LaunchFolder

FAILURE_SUMMARY = """\
Traceback (most recent call last):
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
worker FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-01-02_03:04:06
  host      : node
  rank      : 0 (local_rank: 0)
  exitcode  : -6 (pid: 100)
  error_file: /tmp/0/error.json
  traceback : Signal 6 (SIGABRT) received by PID 100
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-01-02_03:04:05
  host      : node
  rank      : 11 (local_rank: 11)
  exitcode  : 7 (pid: 111)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""

STACKS = """\
Thread 0x00007f0000000001 (most recent call first):
  File "/x/threading.py", line 331 in wait

Current thread 0x00007f0000000002 (most recent call first):
  File "/x/data.py", line 12 in read
  File "/x/worker.py", line 3 in main
"""


def write_error(path: Path, message: object, *, second: int) -> Path:
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"message": message}))
    os.utime(path, (second, second))
    return path


def test_exit_codes_are_read_from_torchruns_summary() -> None:
    assert evidence.parse_exit_codes(FAILURE_SUMMARY) == {0: -6, 11: 7}


def test_a_summary_without_failures_has_no_exit_codes() -> None:
    assert evidence.parse_exit_codes("W0102 some warning about a rank : 3\n") == {}


def test_errors_come_in_the_order_they_happened(tmp_path: Path) -> None:
    first = write_error(tmp_path / "1" / "error.json", {"message": "ValueError: boom"}, second=1)
    second = write_error(tmp_path / "0" / "error.json", "plain text", second=2)
    errors = evidence.read_errors({0: second, 1: first})
    assert [(error.rank, error.message) for error in errors] == [
        (1, "ValueError: boom"),
        (0, "plain text"),
    ]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"other": 1}', '{"message": {}}'])
def test_an_error_file_cut_short_is_no_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "error.json").write_text(text)
    assert evidence.read_errors({0: tmp_path / "error.json"}) == ()


def test_the_stack_top_is_the_innermost_frame_of_the_thread_that_was_asked() -> None:
    assert evidence.stack_top("noise\n" + STACKS) == 'File "/x/data.py", line 12 in read'


def test_the_last_stack_counts() -> None:
    later = STACKS.replace("data.py", "later.py")
    assert evidence.stack_top(STACKS + later) == 'File "/x/later.py", line 12 in read'


def test_without_a_stack_there_is_no_top() -> None:
    assert evidence.stack_top("Traceback (most recent call last):\n") is None


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", ""),
        ("one\ntwo\n\n", "two"),
        ("[rank1]: ValueError: boom\n=====\n", "ValueError: boom"),
        ("----\n====\n", ""),
    ],
)
def test_last_words_skip_blank_lines_and_rulers(text: str, line: str) -> None:
    assert evidence.last_line(text) == line


def test_the_kernels_count_of_out_of_memory_kills_is_read(tmp_path: Path) -> None:
    (tmp_path / "vmstat").write_text("pgfault 123\noom_kill 4\nunevictable_pgs 0\n")
    assert evidence.count_oom_kills(tmp_path / "vmstat") == 4


def test_a_kernel_that_does_not_count_gives_none(tmp_path: Path) -> None:
    (tmp_path / "vmstat").write_text("pgfault 123\n")
    assert evidence.count_oom_kills(tmp_path / "vmstat") is None
    assert evidence.count_oom_kills(tmp_path / "absent") is None


def test_a_broken_result_is_a_reason_and_no_result(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text('{"schema_version": 1, "losses": [')
    found = evidence.gather(
        LaunchFolder(tmp_path),
        num_ranks=1,
        exit_code=0,
        stop=None,
        stop_after_s=0.0,
        oom_kills=None,
    )
    assert found.result is None
    assert "result.json is not JSON" in found.result_problem
