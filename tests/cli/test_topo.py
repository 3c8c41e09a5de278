import io
import json

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from meshfit.cli import topo
from meshfit.errors import InputError


@pytest.fixture(scope="module")
def app():
    app = typer.Typer()
    app.command()(topo.topo)
    app.command()(topo.catalogue)
    return app


def run(app, *arguments):
    return CliRunner().invoke(app, arguments)


@pytest.fixture
def printed(app, monkeypatch):
    """What a command prints for a person, on a terminal of 120 columns."""

    def show(*arguments):
        console = Console(file=io.StringIO(), width=120)
        monkeypatch.setattr(topo, "stdout", console)
        run(app, *arguments)
        return console.file.getvalue()

    return show


def test_a_topology_is_one_json_document(app):
    document = json.loads(run(app, "topo", "2x8 H100-SXM", "--json").stdout)
    assert {"accelerators", "accelerator", "levels", "nics", "numa_nodes", "warnings"} <= set(
        document
    )
    assert {"name", "size", "kind", "bandwidth", "from"} <= set(document["levels"][0])


def test_a_topology_is_drawn_from_the_outermost_level(printed):
    lines = printed("topo", "9x8 H100-SXM").splitlines()
    assert lines[0] == "72 x H100-SXM5-80 on 9 hosts"
    assert "network: switch of 9, 50.0 GB/s (spec)" in lines[1]
    assert "link: switch of 8, 450 GB/s (spec)" in lines[2]
    assert "79.1 GiB" in lines[3]
    assert any("host7 and 1 more" in line for line in lines)


def test_this_machine_is_the_default(app):
    assert json.loads(run(app, "topo", "--json").stdout)["here"] is True


def test_a_wrong_cluster_is_an_input_error(app):
    assert isinstance(run(app, "topo", "nowhere").exception, InputError)


@pytest.mark.parametrize(
    ("kind", "name"),
    [("accelerators", "H100-SXM5-80"), ("nodes", "AWS-p5"), ("models", "llama-3.1-8b")],
)
def test_the_catalogue_lists_and_shows(app, printed, kind, name):
    rows = json.loads(run(app, "catalogue", kind, "--json").stdout)
    assert name in {row["name"] for row in rows}
    assert all(row["source"] for row in rows)
    shown = json.loads(run(app, "catalogue", kind, name, "--json").stdout)
    assert shown["name"] == name
    assert name in printed("catalogue", kind)
    assert name in printed("catalogue", kind, name)


def test_an_unknown_kind_is_refused(app):
    assert run(app, "catalogue", "gpus").exit_code == 2
