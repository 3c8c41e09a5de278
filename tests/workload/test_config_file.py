"""Whatever stands in a config file, reading it ends in a mapping or in one clear message."""

import json
import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from meshfit.errors import InputError
from meshfit.workload import config_file
from meshfit.workload.config_file import read_config


def test_a_folder_stands_for_its_config_json(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    assert read_config(tmp_path) == {"model_type": "llama"}
    assert read_config(tmp_path / "config.json") == {"model_type": "llama"}


def test_infinity_and_nan_are_read(tmp_path):
    file = tmp_path / "config.json"
    file.write_text('{"model_type": "llama", "limit": Infinity, "low": -Infinity, "x": NaN}')
    config = read_config(file)
    assert config["limit"] == math.inf
    assert config["low"] == -math.inf
    assert math.isnan(config["x"])


def test_a_wrapped_config_is_unwrapped_only_when_the_top_level_is_no_config(tmp_path):
    file = tmp_path / "config.json"
    inner = {"model_type": "llama"}
    file.write_text(json.dumps({"id": "x", "config": inner}))
    assert read_config(file) == inner
    file.write_text(json.dumps({"architectures": ["X"], "config": inner}))
    assert read_config(file)["config"] == inner


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"model_type": "llama",\n "hidden_size": }', r"not JSON at line 2, column 17"),
        (b"", r"not JSON at line 1, column 1"),
        (b"[1, 2]", r"holds an array; a model config is a JSON object"),
        (b"null", r"holds null"),
        (b"Infinity", r"holds a number"),
        (b'"llama"', r"holds a string"),
        (b'{"a": "\xff\xfe"}', r"not text in utf-8 at byte 7"),
        (b"[" * 200_000, r"nested too deeply"),
        (b'{"a":' * 200_000, r"nested too deeply"),
        (b'{"vocab_size": ' + b"9" * 5000 + b"}", r"more than 4300 digits"),
    ],
)
def test_what_is_no_config_is_refused_with_the_place(tmp_path, content, message):
    file = tmp_path / "config.json"
    file.write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_config(file)


def test_a_missing_file_is_named_with_what_a_folder_must_hold(tmp_path):
    with pytest.raises(InputError, match=r"config\.json: no such file; .* must hold config\.json"):
        read_config(tmp_path)


@pytest.mark.parametrize("name", ["nul\0byte", "n" * 5000])
def test_a_path_the_system_refuses_is_an_input_error(tmp_path, name):
    with pytest.raises(InputError, match=r"cannot be read"):
        read_config(tmp_path / name)


def test_a_file_of_weights_is_not_read_into_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(config_file, "MAX_CONFIG_BYTES", 2**20)
    file = tmp_path / "model.safetensors"
    file.write_bytes(b" " * (2**20 + 1))
    with pytest.raises(InputError, match=r"larger than 1 MiB"):
        read_config(file)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(content=st.binary(max_size=200))
def test_random_bytes_give_a_mapping_or_an_input_error(tmp_path, content):
    file = tmp_path / "config.json"
    file.write_bytes(content)
    try:
        assert isinstance(read_config(file), dict)
    except InputError as error:
        assert str(file) in str(error)


def test_a_key_twice_with_different_values_is_refused_and_with_one_value_is_not(tmp_path):
    file = tmp_path / "config.json"
    file.write_text('{"model_type": "llama", "hidden_size": 64, "hidden_size": 128}')
    with pytest.raises(InputError, match="'hidden_size' stands there twice with different values"):
        read_config(file)
    file.write_text('{"text_config": {"hidden_size": 64, "hidden_size": 64}}')
    assert read_config(file) == {"text_config": {"hidden_size": 64}}


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_the_encodings_of_json_are_read(tmp_path, encoding):
    file = tmp_path / "config.json"
    file.write_text('{"model_type": "gpt2"}', encoding=encoding)
    assert read_config(file) == {"model_type": "gpt2"}
