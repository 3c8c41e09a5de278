"""The lock of a run folder: two sweeps never share one."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from meshfit.errors import InputError

LOCK_NAME = ".lock"


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Holds ``folder`` (made if missing) for this process until the block ends.

    The operating system drops the lock when the process ends in any way, so a lock file that lies
    about locks nobody out.

    Raises:
        InputError: another process holds the folder (the message names its pid), or nothing can
            be written into it.
    """
    with _open_lock(folder) as file:
        _lock(file, folder)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def _open_lock(folder: Path) -> TextIO:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return (folder / LOCK_NAME).open("a+")
    except OSError as error:
        raise InputError(
            f"run folder {folder} cannot be used: {error.strerror} ({error.filename}); "
            "choose another one"
        ) from None


def _lock(file: TextIO, folder: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        holder = file.read().strip() or "unknown"
        raise InputError(
            f"{folder} is in use by another meshfit (pid {holder}): "
            "wait for it, end it, or choose another run folder"
        ) from None
    except OSError as error:
        raise InputError(
            f"run folder {folder} cannot be locked: {error.strerror}; choose one on a file system "
            f"that has locks"
        ) from None
