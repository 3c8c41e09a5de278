"""Sizes of models that rows name, against what is known of each."""

import csv
from importlib import resources

import pytest

from meshfit.validate.architecture import model_of
from meshfit.validate.public_models import FILE, public_sizes
from meshfit.validate.rows import TruthRow
from meshfit.workload.counts import total_parameters

LINES = resources.files("meshfit.validate").joinpath(FILE).read_text("utf-8").splitlines()
ROWS = list(csv.DictReader(LINES))
BILLIONS = {
    "grok1-314b": 316.5, "mixtral-8x22b": 140.6, "gpt3-5b": 5.05, "gpt3-20b": 20.3,
    "nemotron-22b": 21.3, "nemotron3-8b": 8.54, "llama2-34b": 33.7, "qwen-1.8b": 1.84,
    "qwen-7b": 7.72, "qwen-14b": 14.2, "qwen-72b": 72.3, "chatglm3-6b": 6.24, "yi-6b": 6.06,
    "zephyr-7b": 7.24, "baichuan2-7b": 7.51, "baichuan2-13b": 13.9, "gpt2-10b": 10.3,
    "gpt2-20b": 20.5,
}  # fmt: skip


@pytest.mark.parametrize(("name", "billions"), BILLIONS.items())
def test_each_has_as_many_parameters_as_are_published(name, billions):
    cells = {
        "id": "R-1",
        "model": name,
        "arch": "moe" if "x22" in name or "grok" in name else "dense",
    }
    assert total_parameters(model_of(TruthRow(cells))) == pytest.approx(billions * 1e9, rel=0.01)


def test_every_line_has_its_source_and_no_name_is_met_twice():
    names = [name for row in ROWS for name in row["names"].split("|")]
    assert len(set(names)) == len(names)
    assert all(row["source"] for row in ROWS)
    assert all(name == name.lower() for name in names)


def test_an_unknown_name_has_no_sizes():
    assert public_sizes("nobodys-7b") == {}
    assert public_sizes("YI-6B") == public_sizes("yi-6b")
