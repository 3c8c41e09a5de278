"""Case e09: weights that someone has split over tensor-parallel ranks already."""

from pathlib import Path

import pytest

from meshfit.errors import InputError


def read(folder: Path, stored: tuple[int, int], expected: tuple[int, int]) -> None:
    import torch
    from safetensors.torch import save_file

    from meshfit.run.model.weights import WeightsFolder

    save_file({"lm_head.weight": torch.zeros(stored)}, folder / "model.safetensors")
    WeightsFolder(folder).read(["lm_head.weight"], expected, (slice(None), slice(None)))


def test_e09_a_quarter_of_the_vocabulary_is_said_to_be_one_of_four_parts(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"\(8192, 4\).*\(32768, 4\): one of 4 parts, so these"):
        read(tmp_path, (8192, 4), (32768, 4))


def test_another_shape_is_not_taken_for_a_part(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gives it \(32768, 4\)$"):
        read(tmp_path, (8192, 8), (32768, 4))
    with pytest.raises(InputError, match=r"gives it \(32768, 4\)$"):
        read(tmp_path, (8191, 4), (32768, 4))
