"""Commands on streams of every kind."""

import json
import os
import subprocess
import sys

import pytest

COMMAND = [sys.executable, "-m", "meshfit.cli.main", "topo", "2x8 H100-SXM"]


def run(*arguments, **environment):
    return subprocess.run(
        [*COMMAND, *arguments],
        env=os.environ | environment,
        capture_output=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize(
    "environment",
    [{"PYTHONIOENCODING": "ascii"}, {"COLUMNS": "0"}, {"COLUMNS": "wide"}, {"TERM": "dumb"}],
)
def test_a_table_is_shown_whatever_the_stream(environment):
    ended = run(**environment)
    assert ended.returncode == 0
    assert b"16 x H100" in ended.stdout
    assert not ended.stderr


def test_json_is_json_on_a_stream_of_few_characters():
    ended = run("--json", PYTHONIOENCODING="ascii")
    assert json.loads(ended.stdout.decode("ascii"))["accelerators"] == 16


@pytest.mark.parametrize("options", ["", "--json"])
def test_a_closed_stdout_is_no_traceback(options):
    ended = subprocess.run(
        f"exec '{COMMAND[0]}' -m meshfit.cli.main topo '2x8 H100-SXM' {options} >&-",
        shell=True,
        stderr=subprocess.PIPE,
        check=False,
        timeout=60,
    )
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_a_full_disk_is_one_message():
    with open("/dev/full", "wb") as full:  # noqa: PTH123
        ended = subprocess.run(
            COMMAND, stdout=full, stderr=subprocess.PIPE, check=False, timeout=60
        )
    assert ended.returncode == 3
    assert b"No space left" in ended.stderr
    assert b"Traceback" not in ended.stderr
