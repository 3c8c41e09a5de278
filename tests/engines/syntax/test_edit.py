"""Files with options set otherwise: everything else stays as it was."""

import json
import tomllib

import pytest
import yaml

from meshfit.engines.syntax.blocks import read_json, read_toml, read_yaml
from meshfit.engines.syntax.edit import SHELL, TOML, YAML, edited, says
from meshfit.engines.syntax.edit_json import edited_json
from meshfit.engines.syntax.shell import read_script


def edit_script(text, changes):
    return edited(text, read_script(text, {"--flag": "flag"}).settings, changes, SHELL)


@pytest.mark.parametrize(
    ("text", "changes", "expected"),
    [
        ("run --tp 8 --pp 2\n", {"--tp": 4}, "run --tp 4 --pp 2\n"),
        ("run --tp=8\n", {"--tp": 4}, "run --tp=4\n"),
        ("run --tp $TP \\\n  --pp 2\n", {"--tp": 4}, "run --tp 4 \\\n  --pp 2\n"),
        ("run --flag --tp 8\n", {"--flag": None}, "run --tp 8\n"),
        ("A=(\n  --flag\n  --tp 8\n)\n", {"--flag": None}, "A=(\n  --tp 8\n)\n"),
        ("A=(\n  --tp 8\n)\n", {"--flag": True}, "A=(\n  --tp 8\n  --flag\n)\n"),
        (
            "run \\\n  --tp 8 \\\n  --pp 2\n",
            {"--cp": 2, "--flag": True},
            "run \\\n  --tp 8 \\\n  --pp 2 \\\n  --cp 2 \\\n  --flag\n",
        ),
        (
            "run --tp 8 --tp-overlap 1\n",
            {"--tp": 4},
            "run --tp 4 --tp-overlap 1\n",
        ),
        ('C="a.py --pp 2 --tp 8"\n', {"--tp": 4}, 'C="a.py --pp 2 --tp 4"\n'),
        (
            'C="a.py --pp 2 \\\n  --tp 8"\n',
            {"--cp": 2},
            'C="a.py --pp 2 \\\n  --cp 2 --tp 8"\n',
        ),
        ("A=(\n  --pp 2\n  --tp 8)\n", {"--cp": 2}, "A=(\n  --pp 2\n  --cp 2 --tp 8)\n"),
    ],
)
def test_a_script(text, changes, expected):
    assert edit_script(text, changes) == expected


@pytest.mark.parametrize(
    "text",
    [
        '{\n  "a": 1,\n  "block": {\n    "x": 2,\n    "y": {"z": 3}\n  }\n}\n',
        '{"a": 1, "block": {"x": 2, "y": {"z": 3}}}',
        '{"a":1,"block":{"y":{"z":3},\n\t"x":2}}',
    ],
    ids=["a line each", "one line", "tabs and no spaces"],
)
def test_json_stays_json_whatever_is_added_or_left_out(text):
    changes = {"a": 5, "b": 6, "block.y": None, "block.w": True, "other.inner": "cpu"}
    new = edited_json(text, read_json(text), changes)
    assert json.loads(new) == {
        "a": 5,
        "b": 6,
        "block": {"x": 2, "w": True},
        "other": {"inner": "cpu"},
    }
    assert says(read_json(text), read_json(new), changes)


def test_the_rest_of_a_json_file_stays_as_it_was():
    text = '{\n  "a": 1,\n  "block": {\n    "x": 2,\n    "y": 3\n  }\n}\n'
    new = edited_json(text, read_json(text), {"block.y": None, "block.x": 4, "c": 7})
    assert new == '{\n  "c": 7,\n  "a": 1,\n  "block": {\n    "x": 4\n  }\n}\n'


def test_an_edit_that_does_not_say_what_was_asked_for_is_noticed():
    before = read_script("run --tp 8 --pp 2", {}).settings
    other = read_script("run --tp 4 --pp 2", {}).settings
    assert says(before, other, {"--tp": 4})
    assert says(before, other, {"--tp": 4, "--sp": None})
    assert not says(before, other, {"--tp": 2})
    assert not says(before, other, {"--tp": 4, "--pp": None})
    assert not says(before, other, {"--tp": 4, "--sp": True})


def test_yaml_stays_yaml():
    text = "a: 1  # note\nblock:\n  x: 2\n"
    changes = {"a": 5, "block.x": None, "block.w": False, "other.inner": "cpu", "other.n": 3}
    changes["block.v"] = True
    new = edited(text, read_yaml(text), changes, YAML)
    assert "# note" in new
    assert yaml.safe_load(new) == {
        "a": 5,
        "block": {"w": False, "v": True},
        "other": {"inner": "cpu", "n": 3},
    }


def test_a_yaml_block_of_which_nothing_is_left_goes_too():
    text = "kind: FSDP\nblock:\n  x: 2\n  y: 3\n"
    new = edited(text, read_yaml(text), {"kind": "DDP", "block.x": None, "block.y": None}, YAML)
    assert yaml.safe_load(new) == {"kind": "DDP"}


def test_toml_stays_toml():
    text = '[a]\nx = 1 # note\ns = "old"\n\n[b]\ny = 2\n'
    changes = {"a.x": 5, "a.s": "new", "a.z": 7, "b.y": None, "c.w": "cpu"}
    new = edited(text, read_toml(text), changes, TOML)
    assert "# note" in new
    assert tomllib.loads(new) == {"a": {"x": 5, "s": "new", "z": 7}, "b": {}, "c": {"w": "cpu"}}
