from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field

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


def test_a_key_twice_is_refused_with_its_place(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text("layout: {tp: 2, pp: 2}\nlayout: {tp: 4}\n")
    with pytest.raises(InputError, match="line 2, column 1: 'layout' is there twice"):
        read_yaml_mapping(path)


def test_a_name_no_file_can_have_is_refused():
    with pytest.raises(InputError, match="cannot read"):
        read_yaml_mapping(Path("a\0b"))


def test_what_never_ends_is_not_read_to_the_end():
    with pytest.raises(InputError, match="larger than"):
        read_yaml_mapping(Path("/dev/zero"))


class Union(BaseModel):
    model_config = ConfigDict(extra="forbid")
    degree: Annotated[int, Field(gt=0)] | list[Annotated[int, Field(gt=0)]] = 1
    layout: str | Inner | None = None


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"degree": {}}, "degree: {} is not allowed; expected an integer or a list"),
        ({"degree": [1, -1]}, "degree.1: -1 is not allowed; expected greater than 0"),
        ({"layout": 3}, "layout: 3 is not allowed; expected a string or keys and values"),
        ({"layout": {"kind": "c"}}, "layout.kind: 'c' is not one of 'a' or 'b'"),
        ({"layout": {"Inner": 1}}, "unknown key 'layout.Inner'; known keys: sequence_length, kind"),
    ],
)
def test_a_value_that_may_be_of_several_types_is_one_problem(document, message):
    with pytest.raises(InputError) as caught:
        validate(Union, document, "job.yaml")
    assert str(caught.value) == f"job.yaml: {message}"
