"""The drawings in docs are what their commands make."""

import re
import shlex
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from meshfit.cli import topo

ROOT = Path(__file__).parents[2]
COMMANDS = re.findall(
    r"^    meshfit topo (.*)$", (ROOT / "docs/topologies/README.md").read_text(), re.MULTILINE
)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_drawing_is_what_its_command_makes(command, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    app = typer.Typer()
    app.command()(topo.topo)
    *arguments, kept = shlex.split(command)
    drawn = tmp_path / "drawn.svg"
    result = CliRunner().invoke(app, [*arguments, str(drawn)])
    assert result.exit_code == 0, result.output
    assert drawn.read_text() == (ROOT / kept).read_text()
    assert drawn.stat().st_size < 64 * 1024
