"""``python -m meshfit.serve.servers.tied PARENT_PID COMMAND ...``: becomes the command, which then ends
with its parent, however hard that is killed."""

import os
import sys

from meshfit.lifeline import end_with_parent


def tied_command(argv: tuple[str, ...], *, parent_pid: int) -> tuple[str, ...]:
    """The command line that runs ``argv`` tied to ``parent_pid``."""
    return (sys.executable, "-m", "meshfit.serve.servers.tied", str(parent_pid), *argv)


def main(argv: list[str]) -> None:
    """Ties the lifeline of ``argv[0]``, which ``exec`` keeps, and becomes ``argv[1:]``."""
    end_with_parent(int(argv[0]))
    os.execvp(argv[1], argv[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
