from typing import Literal

import pytest
from pydantic import BaseModel, ConfigDict

from meshfit.errors import InputError
from meshfit.files import read_yaml_mapping, validate


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")
    sequence_length: int = 1
    kind: Literal["a", "b"] = "a"


class Outer(BaseModel):
    model_config = ConfigDict(extra="forbid")
    inner: Inner = Inner()
    either: str | Inner | None = None


def test_a_misspelt_key_comes_with_the_nearest_one():
    with pytest.raises(InputError, match=r"inner\.sequnce_length.*did you mean 'sequence_length'"):
        validate(Outer, {"inner": {"sequnce_length": 3}}, "job.yaml")


def test_a_key_that_resembles_none_comes_with_all_of_them():
    with pytest.raises(InputError, match="unknown key 'zzz'; known keys: inner, either"):
        validate(Outer, {"zzz": 3}, "job.yaml")


def test_every_problem_is_told_at_once():
    with pytest.raises(InputError) as caught:
        validate(Outer, {"inner": {"sequence_length": "x", "kind": "c"}}, "job.yaml")
    message = str(caught.value)
    assert "inner.sequence_length: 'x' is not allowed" in message
    assert "inner.kind: 'c' is not one of 'a' or 'b'" in message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: [1", "not YAML at line 2"),
        ("- 1\n- 2\n", "must hold keys and values.*found list"),
        ("", "found nothing"),
        ("42", "found int"),
    ],
)
def test_what_is_no_yaml_mapping_is_refused(tmp_path, text, expected):
    path = tmp_path / "job.yaml"
    path.write_text(text + "\n")
    with pytest.raises(InputError, match=expected):
        read_yaml_mapping(path)


def test_files_that_cannot_be_read_are_refused(tmp_path):
    with pytest.raises(InputError, match="No such file"):
        read_yaml_mapping(tmp_path / "absent.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not a UTF-8 text file"):
        read_yaml_mapping(tmp_path / "binary.yaml")


def test_deep_nesting_is_a_message_and_no_crash(tmp_path):
    path = tmp_path / "deep.yaml"
    path.write_text("a: " + "[" * 20000)
    with pytest.raises(InputError, match="is not YAML"):
        read_yaml_mapping(path)
