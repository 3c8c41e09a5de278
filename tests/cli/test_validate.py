import csv
import json

import pytest
from typer.testing import CliRunner

from meshfit.cli.main import app
from tests.validate.builders import row

runner = CliRunner()


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "rows.csv"
    rows = [row(id="a", time_s="6.0"), row(id="b", framework="Gemini", time_s="6.0")]
    with path.open("w", newline="") as lines:
        writer = csv.DictWriter(lines, list(rows[0].columns))
        writer.writeheader()
        writer.writerows(one.columns for one in rows)
    return path


def test_the_tables_go_to_the_terminal(table):
    result = runner.invoke(app, ["validate", "training", str(table)])
    assert result.exit_code == 0, result.output
    assert "Step time" in result.output
    assert "not modelled: Gemini" in result.output


def test_json_has_one_entry_a_row(table, capsys):
    result = runner.invoke(app, ["validate", "training", str(table), "--json"])
    document = json.loads(result.stdout)
    assert [entry["id"] for entry in document["rows"]] == ["a", "b"]
    assert document["rows"][0]["step_time"] > 0
    assert document["rows"][1]["reason"] == "not modelled: Gemini"
    assert document["scores"]["time"]["all"]["modelled"] == 1


def test_a_missed_target_ends_with_one(table):
    assert runner.invoke(app, ["validate", "training", str(table), "--targets"]).exit_code == 1


def test_a_file_that_is_not_there_is_one_message(tmp_path):
    result = runner.invoke(app, ["validate", "training", str(tmp_path / "absent.csv")])
    assert result.exit_code != 0
    assert "absent.csv" in str(result.exception)
