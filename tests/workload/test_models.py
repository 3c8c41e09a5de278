"""A model is found by catalogue name, file, folder, or in the Hub cache, in that order."""

import json

import pytest

from meshfit.errors import InputError
from meshfit.workload.counts import total_parameters
from meshfit.workload.models import catalogue, read_model

TINY = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4}


@pytest.fixture(autouse=True)
def no_hub_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))


@pytest.mark.parametrize("name", catalogue())
def test_every_model_of_the_catalogue_reads_and_names_its_source(name):
    model = read_model(name)
    assert name == name.lower() == model.name
    source = catalogue()[name]["source"]
    assert " @ " in source or source.startswith("meshfit:")
    assert model.config["model_type"]


def test_llama_3_1_405b_has_the_published_sizes():
    model = read_model("Llama-3.1-405B")
    assert (model.num_hidden_layers, model.hidden_size, model.vocab_size) == (126, 16384, 128256)
    assert model.attention.num_attention_heads == 128
    assert model.attention.num_key_value_heads == 8
    assert model.mlp.intermediate_size == 53248


def test_a_file_and_its_folder_are_one_model_relative_to_the_base(tmp_path):
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "config.json").write_text(json.dumps(TINY))
    from_folder = read_model("tiny", base=tmp_path)
    from_file = read_model("tiny/config.json", base=tmp_path)
    assert from_folder.hidden_size == from_file.hidden_size == 64
    assert (from_folder.name, from_file.name) == ("tiny", "tiny/config.json")
    assert read_model(str(tmp_path / "tiny"), base=tmp_path / "elsewhere").hidden_size == 64


def test_a_catalogue_name_in_any_case_comes_before_a_folder(tmp_path):
    (tmp_path / "GPT2").mkdir()
    assert read_model("GPT2", base=tmp_path).model_type == "gpt2"


def test_a_home_folder_is_expanded(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    assert read_model("~/config.json").hidden_size == 64


def test_a_repository_is_read_from_the_local_hub_cache(tmp_path):
    folder = tmp_path / "hub" / "models--org--tiny" / "snapshots" / "abc"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(TINY))
    model = read_model("org/tiny", base=tmp_path)
    assert (model.name, model.hidden_size) == ("org/tiny", 64)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("llama-3.1-8", "llama-3.1-8b"), ("Qwen/Qwen3-8B-Base", "qwen3-8b"), ("gpt-2", "gpt2")],
)
def test_an_unknown_name_gets_the_nearest_of_the_catalogue(name, nearest):
    with pytest.raises(InputError, match=rf"no name of the catalogue.*did you mean {nearest}\?"):
        read_model(name)


@pytest.mark.parametrize("name", ["", " ", "nul\0byte", "x" * 5000, "~nobody-here/config.json"])
def test_a_name_that_is_like_nothing_gets_the_command_that_lists_the_catalogue(name):
    with pytest.raises(InputError, match=r"`meshfit catalogue models` lists the names$") as caught:
        read_model(name)
    assert "bloom-560m" not in str(caught.value)


def test_a_folder_without_a_config_says_what_it_must_hold(tmp_path):
    with pytest.raises(InputError, match=r"config\.json: no such file"):
        read_model(str(tmp_path))


@pytest.mark.parametrize(
    "name",
    ["meta-llama/Llama-2-70b-hf", "meta-llama--Llama-2-70b-hf", "llama-2-70b-hf", "LLAMA-2-70B"],
)
def test_a_model_of_the_catalogue_is_found_by_its_repository(name):
    assert read_model(name).name == "llama-2-70b"


def test_a_folder_goes_before_the_repository_of_a_shipped_model(tmp_path):
    (tmp_path / "llama-2-70b-hf").mkdir()
    (tmp_path / "llama-2-70b-hf" / "config.json").write_text(json.dumps(TINY))
    assert read_model("llama-2-70b-hf", base=tmp_path).hidden_size == 64


def test_no_two_models_of_the_catalogue_have_one_repository():
    repositories = [
        name.lower().rpartition("/")[2]
        for entry in catalogue().values()
        for name in entry.get("repositories", ())
    ]
    assert len(set(repositories)) == len(repositories)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("qwen2.5-0.5b", 494032768), ("gemma-3-1b", 999885952), ("llama-13b", 13015864320)],
)
def test_models_from_reports_make_the_parameters_of_their_checkpoints(name, parameters):
    assert total_parameters(read_model(name)) == parameters
