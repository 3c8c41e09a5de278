"""Commands run on other hosts of a job, by processes that share nothing but a folder.

Where a scheduler starts one process a host and has no command to start more (Kubernetes), the first host
leads and the others attend: ``attend`` runs on each of them, and ``python -m meshfit.submit.errands`` on
the first host stands for a command on another one: it lives as long, ends with the same exit code, and
SIGTERM ends what it stands for.

Each host has a folder with two files, which only ever grow and have one writer each: ``errands.jsonl``
(the first host's) and ``answers.jsonl`` (its own). They are opened anew for each look, so that NFS shows
what another host has written.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pydantic_core

from meshfit.lifeline import end_with_parent
from meshfit.record.files import encode
from meshfit.record.lines import append_lines, whole_lines

_POLL_S = 0.5
_GRACE_S = 5.0
_OF_A_LAUNCH = re.compile(r"MESHFIT_\w+|\w+_NUM_THREADS")
"""Variables that go along with every command."""


class HostFiles:
    """What the first host and one other leave for each other."""

    def __init__(self, folder: Path) -> None:
        self._errands = folder / "errands.jsonl"
        self._answers = folder / "answers.jsonl"

    def ask(self, **errand: Any) -> int:
        """Adds an errand; its number."""
        number = len(whole_lines(self._errands))
        append_lines(self._errands, [encode({"number": number, **errand})])
        return number

    def errands(self, after: int) -> list[dict[str, Any]]:
        """Those behind the first ``after``."""
        return [pydantic_core.from_json(line) for line in whole_lines(self._errands)[after:]]

    def answer(self, number: int, exit_code: int) -> None:
        """Says how an errand ended."""
        append_lines(self._answers, [encode({"number": number, "exit_code": exit_code})])

    def num_answered(self) -> int:
        """First errands that need no answer any more."""
        answers = [pydantic_core.from_json(line)["number"] for line in whole_lines(self._answers)]
        return max(answers, default=-1) + 1

    def exit_code(self, number: int) -> int | None:
        """How an errand ended; None as long as it has not."""
        answers = (pydantic_core.from_json(line) for line in whole_lines(self._answers))
        return next((a["exit_code"] for a in answers if a["number"] == number), None)


def errand_prefix(folder: Path, variables: Iterable[str] = ()) -> tuple[str, ...]:
    """What, put before a command, runs it on the host of ``folder``, with these variables, too."""
    module = (sys.executable, "-m", "meshfit.submit.errands")
    return (*module, str(folder), ",".join(variables))


def dismiss(folder: Path) -> None:
    """Lets the host of ``folder`` go."""
    HostFiles(folder).ask(leave=True)


def attend(folder: Path) -> None:
    """Runs what the first host asks for, one errand at a time, until it lets this one go."""
    files = HostFiles(folder)
    done = files.num_answered()
    while True:
        for errand in files.errands(done):
            done += 1
            if errand.get("leave"):
                return
            if "command" in errand:
                files.answer(errand["number"], _run(errand, files, done))
        time.sleep(_POLL_S)


def _run(errand: Mapping[str, Any], files: HostFiles, done: int) -> int:
    """Runs a command until it ends or its end is asked for behind the first ``done`` errands."""
    with Path(errand["stdout"]).open("ab") as out, Path(errand["stderr"]).open("ab") as err:
        process = subprocess.Popen(
            errand["command"],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env={**os.environ, **errand["environment"]},
            start_new_session=True,
        )
    while process.poll() is None:
        asked = files.errands(done)
        if any(other.get("end") == errand["number"] or other.get("leave") for other in asked):
            _end(process)
        time.sleep(_POLL_S)
    return process.returncode


def _end(process: "subprocess.Popen[bytes]") -> None:
    """SIGTERM, then SIGKILL; torchrun's ranks end with it (``run.lifeline``)."""
    process.terminate()
    try:
        process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def stand_for(folder: Path, variables: Sequence[str], command: Sequence[str]) -> int:
    """Has ``command`` run on the host of ``folder``; its exit code (128 + N for signal N)."""
    ending: list[int] = []
    signal.signal(signal.SIGTERM, lambda signum, frame: ending.append(signum))
    files = HostFiles(folder)
    number = files.ask(
        command=list(command),
        environment={
            name: value
            for name, value in os.environ.items()
            if name in variables or _OF_A_LAUNCH.fullmatch(name)
        },
        stdout=str(Path("/proc/self/fd/1").readlink()),
        stderr=str(Path("/proc/self/fd/2").readlink()),
    )
    told = False
    while (code := files.exit_code(number)) is None:
        if ending and not told:
            files.ask(end=number)
            told = True
        time.sleep(_POLL_S)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    end_with_parent(os.getppid())
    sys.exit(stand_for(Path(sys.argv[1]), sys.argv[2].split(","), sys.argv[3:]))
