"""Another program's command, run to its end or to the deadline."""

import sys

import psutil
import pytest

from meshfit.launch.folder import PROCESSES_NAME
from meshfit.launch.program import run_program

PRINTS = "import os, sys; print(os.environ['TOKEN']); print('bad', file=sys.stderr); sys.exit(3)"
LEAVES_A_CHILD = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
print(child.pid, flush=True)
time.sleep(WAIT)
"""


def run(folder, code, **options):
    options = {"variables": {}, "deadline_s": 60.0} | options
    output = folder / "output.log"
    return run_program([sys.executable, "-c", code], folder, output=output, **options), output


def test_what_it_prints_goes_to_a_file_and_its_exit_code_comes_back(tmp_path):
    ended, output = run(tmp_path, PRINTS, variables={"TOKEN": "from outside"})
    assert ended.exit_code == 3
    assert sorted(output.read_text().split("\n")) == ["", "bad", "from outside"]
    assert not (tmp_path / PROCESSES_NAME).exists()


@pytest.mark.parametrize(("wait_s", "deadline_s", "exit_code"), [("0", 60.0, 0), ("60", 3.0, None)])
def test_no_process_of_it_is_left_whether_it_ended_or_was_ended(
    tmp_path, wait_s, deadline_s, exit_code
):
    code = LEAVES_A_CHILD.replace("WAIT", wait_s)
    ended, output = run(tmp_path, code, deadline_s=deadline_s)
    assert ended.exit_code == exit_code
    child = int(output.read_text())
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE


def test_a_command_that_is_not_there_is_an_error_of_the_system(tmp_path):
    with pytest.raises(OSError, match="no-such-program"):
        run_program(
            ["no-such-program"], tmp_path, variables={}, output=tmp_path / "out", deadline_s=1.0
        )
