"""A whole command line, as a person types it."""

import pytest

from meshfit.cli import main as cli


@pytest.fixture
def said(monkeypatch, capsys):
    """Exit code, stdout and stderr of a command line."""

    def run(*arguments):
        monkeypatch.setattr("sys.argv", ["meshfit", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        printed = capsys.readouterr()
        return ended.value.code, printed.out, printed.err

    return run
