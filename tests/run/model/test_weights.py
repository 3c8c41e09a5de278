"""Initial weights on disk, and loading parts of any weights."""

import json
from pathlib import Path

import pytest

from meshfit.errors import InputError
from tests.run.layouts import CONFIGS


def write(folder: Path, name: str, seed: int = 0, **options) -> Path:
    from meshfit.run.model.weights import write_initial_weights

    write_initial_weights(CONFIGS[name], folder, seed, **options)
    return folder


def tensors_of(folder: Path) -> dict:
    from safetensors.torch import load_file

    return {
        name: tensor
        for path in sorted(folder.glob("*.safetensors"))
        for name, tensor in load_file(path).items()
    }


def load(folder: Path, name: str, layers: range | None = None):
    """All layers, where none are named."""
    import torch

    from meshfit.run.model.transformer import Stage, build_causal_lm, family_of
    from meshfit.run.model.weights import load_shards

    model = build_causal_lm(CONFIGS[name])[0]
    stage = Stage(
        model,
        family_of(CONFIGS[name]),
        layers=range(model.config.num_hidden_layers) if layers is None else layers,
        autocast_dtype=None,
    )
    load_shards(stage, folder, torch.device("cpu"))
    return stage


def pretrained(folder: Path):
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


@pytest.mark.parametrize("name", CONFIGS)
def test_hugging_face_loads_the_folder_and_has_the_same_parameters(
    tmp_path: Path, name: str
) -> None:
    import torch

    folder = write(tmp_path / "weights", name)
    ours = load(folder, name).parameters_by_name()
    theirs = dict(pretrained(folder).named_parameters())
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_values_are_distributed_as_the_family_initialises_them(tmp_path: Path, name: str) -> None:
    """GPT-2 draws residual projections narrower, norms are ones, biases zeros."""
    from transformers import AutoConfig, AutoModelForCausalLM

    ours = tensors_of(write(tmp_path / "weights", name))
    theirs = AutoModelForCausalLM.from_config(AutoConfig.for_model(**CONFIGS[name])).state_dict()
    for key, tensor in ours.items():
        assert tensor.std().item() == pytest.approx(theirs[key].std().item(), rel=0.1, abs=1e-6), (
            key
        )
        assert tensor.mean().item() == pytest.approx(theirs[key].mean().item(), abs=3e-3), key


def test_one_seed_gives_one_set_of_weights_however_they_are_split(tmp_path: Path) -> None:
    import torch

    whole = tensors_of(write(tmp_path / "whole", "llama"))
    split = tensors_of(write(tmp_path / "split", "llama", file_bytes=10_000))
    assert len(list((tmp_path / "split").glob("*.safetensors"))) > 5
    assert whole.keys() == split.keys()
    assert all(torch.equal(whole[key], split[key]) for key in whole)


def test_another_seed_gives_other_weights(tmp_path: Path) -> None:
    import torch

    first = tensors_of(write(tmp_path / "first", "llama"))
    second = tensors_of(write(tmp_path / "second", "llama", seed=1))
    assert not torch.equal(first["lm_head.weight"], second["lm_head.weight"])


def test_the_index_names_the_file_of_every_tensor(tmp_path: Path) -> None:
    folder = write(tmp_path / "weights", "llama", file_bytes=10_000)
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    tensors = tensors_of(folder)
    assert index["weight_map"].keys() == tensors.keys()
    assert index["metadata"]["total_size"] == sum(tensor.nbytes for tensor in tensors.values())


def test_a_tied_head_is_written_once(tmp_path: Path) -> None:
    assert "lm_head.weight" not in tensors_of(write(tmp_path / "weights", "llama_tied"))


def test_an_interrupted_writer_leaves_nothing_that_looks_like_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from meshfit.run.model import weights

    def fail(*_args, **_options) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(weights, "save_file", fail)
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "weights", "llama")
    assert not (tmp_path / "weights").exists()
    monkeypatch.undo()
    write(tmp_path / "weights", "llama")
    assert [path.name for path in tmp_path.iterdir()] == ["weights"]


def test_finished_weights_are_left_as_they_are(tmp_path: Path) -> None:
    folder = write(tmp_path / "weights", "llama")
    before = (folder / "model-00001.safetensors").stat().st_mtime_ns
    write(folder, "llama")
    assert (folder / "model-00001.safetensors").stat().st_mtime_ns == before


def test_memory_holds_a_layer_and_a_file_but_never_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from meshfit.run.model import weights

    held = []
    save = weights.save_file

    def watched(tensors, *args, **options) -> None:
        held.append(sum(tensor.nbytes for tensor in tensors.values()))
        save(tensors, *args, **options)

    monkeypatch.setattr(weights, "save_file", watched)
    write(tmp_path / "weights", "llama", file_bytes=50_000)
    layer_bytes = 4 * (4 * 32 * 32 + 3 * 32 * 64 + 2 * 32)
    assert max(held) <= 50_000 + layer_bytes
    assert sum(held) > 3 * max(held)


def test_a_stage_reads_only_what_it_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from meshfit.run.model.weights import WeightsFolder

    folder, asked = write(tmp_path / "weights", "llama"), []
    read = WeightsFolder.read
    monkeypatch.setattr(
        WeightsFolder,
        "read",
        lambda self, names, *part: asked.append(tuple(names)) or read(self, asked[-1], *part),
    )
    load(folder, "llama", range(1, 2))
    assert {names[0].split(".")[2] for names in asked} == {"1"}


def test_a_file_in_bfloat16_fills_fp32_parameters(tmp_path: Path) -> None:
    import torch

    pretrained(write(tmp_path / "fp32", "llama")).bfloat16().save_pretrained(tmp_path / "bf16")
    assert (tmp_path / "bf16" / "model.safetensors").exists()
    ours = load(tmp_path / "bf16", "llama").head.weight
    theirs = load(tmp_path / "fp32", "llama").head.weight
    assert ours.dtype == torch.float32
    assert torch.equal(ours, theirs.bfloat16().float())


def test_gpt2_files_may_leave_out_the_base_models_name(tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file

    tensors = tensors_of(write(tmp_path / "weights", "gpt2"))
    (tmp_path / "short").mkdir()
    short = {name.removeprefix("transformer."): tensor for name, tensor in tensors.items()}
    save_file(short, tmp_path / "short" / "model.safetensors")
    loaded = load(tmp_path / "short", "gpt2").parameters_by_name()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in tensors.items())


def test_a_folder_without_weights_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"neither model.safetensors nor model.safetensors.index"):
        load(tmp_path, "llama")


def test_a_missing_parameter_is_named(tmp_path: Path) -> None:
    folder = write(tmp_path / "weights", "llama_tied")
    with pytest.raises(InputError, match=r"lack model.layers.0.self_attn.q_proj.bias"):
        load(folder, "llama_bias")


def test_a_parameter_of_another_shape_is_named(tmp_path: Path) -> None:
    """A larger one as well: its first rows must not pass for the whole."""
    folder = write(tmp_path / "weights", "llama")
    message = r"k_proj.weight has the shape \(32, 32\), but this model config gives it \(16, 32\)"
    with pytest.raises(InputError, match=message):
        load(folder, "llama_tied")


@pytest.mark.parametrize("file", ["model-00001.safetensors", "model.safetensors.index.json"])
def test_a_truncated_file_is_named(tmp_path: Path, file: str) -> None:
    folder = write(tmp_path / "weights", "llama")
    path = folder / file
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InputError, match=file):
        load(folder, "llama")
