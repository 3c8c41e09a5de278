"""What a launch left behind that tells how it ended."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pydantic_core

from meshfit.errors import InputError
from meshfit.launch.folder import LaunchFolder
from meshfit.record.files import read_document
from meshfit.record.heartbeat import Heartbeat, read_heartbeats
from meshfit.record.schema import RunResult

Stop = Literal["hang", "deadline"]
"""Why the supervisor ended a launch that had not ended by itself."""


@dataclass(frozen=True, kw_only=True)
class RankError:
    """The exception that ended a rank, as ``@record`` wrote it; ``time_s`` since the epoch."""

    rank: int
    message: str
    time_s: float


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Everything ``classify`` looks at.

    Attributes:
        exit_code: torchrun's; negative for a signal; None if it was still running.
        stop: set when the supervisor ended the launch, ``stop_after_s`` after the last progress
            (hang) or the start (deadline).
        errors: in order of time.
        exit_codes: rank -> exit code, of the ranks torchrun saw fail; negative for a signal.
        last_words: rank -> last line of its stderr.
        stack_tops: rank -> innermost Python frame, where the rank was asked.
        torchrun_words: last line of torchrun's own stderr.
        result_problem: why there is no valid result.
        oom_kills: processes that the kernel's out-of-memory killer ended on this host during the
            launch; None where it cannot be had.
    """

    num_ranks: int
    exit_code: int | None
    stop: Stop | None = None
    stop_after_s: float = 0.0
    errors: tuple[RankError, ...] = ()
    exit_codes: Mapping[int, int] = field(default_factory=dict)
    heartbeats: Mapping[int, Heartbeat] = field(default_factory=dict)
    last_words: Mapping[int, str] = field(default_factory=dict)
    stack_tops: Mapping[int, str] = field(default_factory=dict)
    torchrun_words: str = ""
    result: RunResult | None = None
    result_problem: str = ""
    oom_kills: int | None = None


def gather(
    folder: LaunchFolder,
    *,
    num_ranks: int,
    exit_code: int | None,
    stop: Stop | None,
    stop_after_s: float,
    oom_kills: int | None,
) -> Evidence:
    """Reads what the launch in ``folder`` left."""
    stderr = {rank: read_text(path) for rank, path in folder.rank_files("stderr.log").items()}
    torchrun_stderr = "\n".join(read_text(path) for path in folder.torchrun_errors())
    result, result_problem = _read_result(folder)
    return Evidence(
        num_ranks=num_ranks,
        exit_code=exit_code,
        stop=stop,
        stop_after_s=stop_after_s,
        errors=read_errors(folder.rank_files("error.json")),
        exit_codes=parse_exit_codes(torchrun_stderr),
        heartbeats=read_heartbeats(folder.root),
        last_words={rank: last_line(text) for rank, text in stderr.items()},
        stack_tops={rank: top for rank, text in stderr.items() if (top := stack_top(text))},
        torchrun_words=last_line(torchrun_stderr),
        result=result,
        result_problem=result_problem,
        oom_kills=oom_kills,
    )


def read_errors(files: Mapping[int, Path]) -> tuple[RankError, ...]:
    """The exceptions in torchelastic's error files, earliest first.

    Their own time stamps count whole seconds; the files' times order what falls into one second.
    """
    errors = [error for rank, path in files.items() if (error := _read_error(rank, path))]
    return tuple(sorted(errors, key=lambda error: error.time_s))


def _read_error(rank: int, path: Path) -> RankError | None:
    try:
        document: dict[str, Any] = pydantic_core.from_json(path.read_bytes())
        message = document["message"]
        text = message["message"] if isinstance(message, dict) else message
        return RankError(rank=rank, message=str(text), time_s=path.stat().st_mtime)
    except (OSError, ValueError, LookupError, TypeError):
        return None


_EXIT_CODE = re.compile(r"^\s*rank\s*:\s*(\d+)\b.*\n\s*exitcode\s*:\s*(-?\d+)", re.MULTILINE)


def parse_exit_codes(torchrun_stderr: str) -> dict[int, int]:
    """Rank -> exit code from torchrun's failure summary (torch's ``ChildFailedError``)."""
    return {int(rank): int(code) for rank, code in _EXIT_CODE.findall(torchrun_stderr)}


_STACK = re.compile(r"^Current thread .*\(most recent call first\):\n\s*(File .*)$", re.MULTILINE)


def stack_top(stderr: str) -> str | None:
    """The innermost frame of the last stack that ``faulthandler`` wrote, if it wrote any."""
    frames = _STACK.findall(stderr)
    return str(frames[-1]) if frames else None


def last_line(text: str) -> str:
    """The last line with anything in it, without a ruler (``=====``) or a log's ``[rank0]:``."""
    lines = [re.sub(r"^\[rank\d+\]:\s*", "", line).strip() for line in text.splitlines()]
    return next((line for line in reversed(lines) if line.strip("=- ")), "")


def read_text(path: Path) -> str:
    """The text of a log file, empty if there is none."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def count_oom_kills(vmstat: Path = Path("/proc/vmstat")) -> int | None:
    """Processes that the kernel has ended for lack of memory since it booted (memory limits of
    containers included); None where the kernel does not say."""
    match = re.search(r"^oom_kill (\d+)$", read_text(vmstat), re.MULTILINE)
    return int(match.group(1)) if match else None


def _read_result(folder: LaunchFolder) -> tuple[RunResult | None, str]:
    try:
        return read_document(RunResult, folder.result), ""
    except InputError as error:
        return None, str(error)
