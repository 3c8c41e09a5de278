"""What ``meshfit catalogue`` lists and shows."""

import json

import pytest
import typer

from meshfit.cli import catalogue
from meshfit.engines.abilities import export_names
from tests.cli.one_command import printing, run


@pytest.fixture(scope="module")
def app():
    app = typer.Typer()
    app.command()(catalogue.catalogue)
    return app


@pytest.fixture
def printed(app, monkeypatch):
    return printing(app, catalogue, monkeypatch)


@pytest.mark.parametrize(
    ("kind", "name"),
    [("accelerators", "H100-SXM5-80"), ("nodes", "AWS-p5"), ("models", "llama-3.1-8b")],
)
def test_the_catalogue_lists_and_shows(app, printed, kind, name):
    rows = json.loads(run(app, kind, "--json").stdout)
    assert name in {row["name"] for row in rows}
    assert all(row["source"] for row in rows)
    shown = json.loads(run(app, kind, name, "--json").stdout)
    assert shown["name"] == name
    assert name in printed(kind)
    assert name in printed(kind, name)


def test_figures_of_an_entry_have_units(printed):
    words = printed("accelerators", "H100-SXM").split()
    text = " ".join(words)
    assert "memory 79.1 GiB" in text
    assert "memory_bandwidth 3.35 TB/s" in text
    assert "peak_flops_per_s.bf16 989 TFLOP/s" in text
    assert not [word for word in words if len(word) > 9 and word.replace(".", "").isdigit()]


def test_a_model_is_shown_as_the_command_for_models_shows_it(printed):
    assert "Parameters by part" in printed("models", "gpt2")


def test_engines_are_listed_with_every_name_that_is_exported_to(app, printed):
    rows = json.loads(run(app, "engines", "--json").stdout)
    assert sorted(name for row in rows for name in row["exports"]) == sorted(export_names())
    by_name = {row["name"]: row for row in rows}
    assert by_name["native"]["exports"] == ["torchrun"]
    assert by_name["megatron"]["exports"] == ["megatron", "megatron_bridge"]
    assert "megatron, megatron_bridge" in printed("engines")
    assert json.loads(run(app, "engines", "native", "--json").stdout) == by_name["native"]


def test_an_unknown_kind_is_refused(app):
    assert run(app, "gpus").exit_code == 2
