"""Rows as a table of measurements would print them."""

from meshfit.validate.figures import Figures
from meshfit.validate.rows import REQUIRED_COLUMNS, TruthRow

LLAMA_8B = {
    "model": "llama3-8b", "arch": "dense", "n_layers": "32", "hidden": "4096",
    "ffn_hidden": "14336", "n_heads": "32", "n_kv_heads": "8", "vocab": "128256",
    "gated_mlp": "1", "norm": "rmsnorm", "pos_embedding": "rope", "tied_embeddings": "0",
    "linear_bias": "0",
}  # fmt: skip
ONE_NODE = {
    "gpu": "H100-80GB", "gpus_per_node": "8", "n_gpus": "8", "tp": "1", "pp": "1", "cp": "1",
    "dp": "8", "mbs": "1", "gbs": "64", "seq_len": "8192", "precision": "bf16",
    "task": "pretrain", "status": "ok",
}  # fmt: skip


def row(**columns: str) -> TruthRow:
    """Llama 3 8B on one node under NeMo, with other cells where given."""
    cells = dict.fromkeys(REQUIRED_COLUMNS, "")
    cells |= {"id": "ROW-1", "family": "somewhere", "framework": "NeMo", "zero_stage": "1"}
    return TruthRow(cells | LLAMA_8B | ONE_NODE | columns)


def figures(*each: Figures) -> dict[str, Figures]:
    """By id."""
    return {own.id: own for own in each}
