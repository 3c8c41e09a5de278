"""Experts from files that hold one tensor for each of them."""

import pytest

from tests.run.layouts import CONFIGS

NAMES = {
    "qwen3_moe": ("mlp", "gate_proj", "up_proj", "down_proj"),
    "mixtral": ("block_sparse_moe", "w1", "w3", "w2"),
}


def split(tensors: dict, names: tuple[str, str, str, str]) -> dict:
    """The tensors as the Hub's checkpoints of a family hold them."""
    block, gate, up, down = names
    found = {}
    for name, tensor in tensors.items():
        ours = name.replace(".mlp.", f".{block}.")
        prefix, _, last = ours.rpartition(".")
        for expert, one in enumerate(tensor) if ".experts." in name else ():
            parts = (
                {down: one}
                if last == "down_proj"
                else dict(zip((gate, up), one.chunk(2), strict=True))
            )
            found |= {f"{prefix}.{expert}.{k}.weight": v.clone() for k, v in parts.items()}
        if ".experts." not in name:
            found[ours] = tensor
    return found


@pytest.mark.parametrize("family", NAMES)
def test_experts_one_by_one_load_like_experts_stacked(family: str, tmp_path) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    from meshfit.run.model.transformer import Stage, build_causal_lm, family_of
    from meshfit.run.model.weights import load_shards, write_initial_weights

    def loaded(folder):
        model, _ = build_causal_lm(CONFIGS[family])
        stage = Stage(model, family_of(CONFIGS[family]), layers=range(1, 3), autocast_dtype=None)
        load_shards(stage, folder, torch.device("cpu"))
        return stage.parameters_by_name()

    write_initial_weights(CONFIGS[family], tmp_path / "stacked", seed=0)
    tensors = {}
    for file in (tmp_path / "stacked").glob("*.safetensors"):
        tensors |= load_file(file)
    (tmp_path / "each").mkdir()
    save_file(split(tensors, NAMES[family]), tmp_path / "each" / "model.safetensors")
    expected, found = loaded(tmp_path / "stacked"), loaded(tmp_path / "each")
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_a_part_that_reaches_from_gates_into_up_projections_is_read_from_both() -> None:
    import torch

    from meshfit.run.experts.files import read_each

    whole = {f"x.experts.{e}.{p}.weight": torch.randn(4, 3) for e in range(2) for p in ("gate_proj", "up_proj")}  # fmt: skip

    class Weights:
        def read(self, names, shape, box):
            assert tuple(shape) == (4, 3)
            return whole[names[0]][box]

    stacked = torch.stack(
        [torch.cat([whole[f"x.experts.{e}.{p}.weight"] for p in ("gate_proj", "up_proj")]) for e in range(2)]
    )  # fmt: skip
    box = (slice(1, 2), slice(2, 6), slice(0, 2))
    assert torch.equal(read_each(Weights(), "x.experts.gate_up_proj", (2, 8, 3), box), stacked[box])
