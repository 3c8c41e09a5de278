"""What tests with a real lab need, and what they leave as they found it."""

import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from meshfit.cluster.lab import UP_FILE
from meshfit.lab.commands import PREFIX
from meshfit.lab.machine import NAMESPACE_FILES, PROGRAMS, lab_down
from tests.processes import marked_processes


def namespaces_of_labs() -> list[str]:
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True)
    names = [line.split()[0] for line in listed.stdout.splitlines()]
    return sorted(name for name in names if name.startswith(PREFIX))


def traces() -> list[str]:
    """What there is of any lab on this machine."""
    files = [UP_FILE, *NAMESPACE_FILES.glob(f"{PREFIX}*")]
    return namespaces_of_labs() + [str(path) for path in files if path.exists()]


def why_no_lab() -> str | None:
    """Why no lab can be made here; None when one can."""
    if os.geteuid() != 0:
        return "a lab needs root"
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        return f"a lab needs {', '.join(missing)}"
    probe = f"meshfit-probe-{uuid.uuid4().hex[:8]}"
    made = subprocess.run(
        ["ip", "netns", "add", probe], capture_output=True, text=True, check=False
    )
    if made.returncode:
        return f"no network namespaces here: {made.stderr.strip()}"
    subprocess.run(["ip", "netns", "del", probe], check=True)
    if traces():
        return "a lab of somebody's is up on this machine"
    return None


@pytest.fixture
def no_lab_yet() -> Iterator[None]:
    """A machine on which a lab can be made and none is; whatever a test makes is removed."""
    if (why := why_no_lab()) is not None:
        pytest.skip(why)
    yield
    lab_down()
    assert traces() == []


@pytest.fixture
def marked(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Marks the test's processes and makes sure that none is left when it ends."""
    with marked_processes(monkeypatch, Path(__file__).parent) as mark:
        yield mark
