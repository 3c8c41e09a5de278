"""Weights that tests serve."""

from pathlib import Path


def damaged(good: Path) -> Path:
    """A copy in which one norm of one layer is a tenth off."""
    from safetensors.torch import load_file, save_file

    folder = good.with_name("damaged")
    folder.mkdir()
    for file in good.iterdir():
        if file.suffix != ".safetensors":
            (folder / file.name).write_bytes(file.read_bytes())
            continue
        tensors = load_file(file)
        for name in tensors:
            if name == "model.layers.1.input_layernorm.weight":
                tensors[name] = tensors[name] * 1.1
        save_file(tensors, folder / file.name, metadata={"format": "pt"})
    return folder
