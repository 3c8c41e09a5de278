import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from meshfit.errors import InputError
from meshfit.record.lock import folder_lock


def test_a_second_sweep_is_refused_and_told_who_holds_the_folder(tmp_path: Path) -> None:
    with (
        folder_lock(tmp_path),
        pytest.raises(InputError, match=re.escape(f"{tmp_path} is in use") + f".*{os.getpid()}"),
        folder_lock(tmp_path),
    ):
        pass


def test_a_folder_is_free_again_when_its_sweep_is_done(tmp_path: Path) -> None:
    with folder_lock(tmp_path):
        pass
    with folder_lock(tmp_path):
        assert (tmp_path / ".lock").read_text() == str(os.getpid())


def test_two_folders_do_not_lock_each_other(tmp_path: Path) -> None:
    with folder_lock(tmp_path / "a"), folder_lock(tmp_path / "b"):
        pass


def test_a_killed_sweep_leaves_its_folder_free(tmp_path: Path) -> None:
    code = (
        "import sys, time, pathlib\n"
        "from meshfit.record.lock import folder_lock\n"
        "with folder_lock(pathlib.Path(sys.argv[1])):\n"
        "    print('held', flush=True)\n"
        "    time.sleep(60)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(InputError, match=f"pid {holder.pid}"), folder_lock(tmp_path):
            pass
        holder.send_signal(signal.SIGKILL)
    with folder_lock(tmp_path):
        pass
