"""How a command ends: its exit code, and one message instead of a traceback."""

import errno
import os

import pytest
import typer

from meshfit.cli import main as cli
from meshfit.errors import InputError, NothingFitsError, RunError


@pytest.fixture
def ending(monkeypatch, capsys):
    """Exit code and stderr of a command that raises ``error``."""

    def run(error):
        def command():
            raise error

        app = typer.Typer(pretty_exceptions_enable=False)
        app.command()(command)
        monkeypatch.setattr(cli, "app", app)
        monkeypatch.setattr("sys.argv", ["meshfit"])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return ended.value.code, " ".join(capsys.readouterr().err.split())

    return run


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [(NothingFitsError("[x]"), 1), (InputError("[x]"), 2), (RunError("[x]"), 3)],
)
def test_an_error_is_one_message_and_its_exit_code(ending, error, exit_code):
    assert ending(error) == (exit_code, "error: [x]")


def test_a_machine_that_refuses_is_a_failed_run(ending):
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "full/x")
    assert ending(full) == (3, "error: full/x: No space left on device")


def test_ctrl_c_says_that_what_had_finished_is_kept(ending):
    code, message = ending(KeyboardInterrupt())
    assert code == 130
    assert "the same command resumes" in message


def test_a_slip_of_the_program_keeps_its_traceback(ending):
    with pytest.raises(ZeroDivisionError):
        ending(ZeroDivisionError())
