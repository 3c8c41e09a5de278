"""Rows of a table of published training measurements, as they are printed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from meshfit.validate.cells import require_possible
from meshfit.validate.csv_file import read_table

REQUIRED_COLUMNS: tuple[str, ...] = (
    "id", "family", "model", "arch", "n_layers", "hidden", "ffn_hidden", "n_heads", "n_kv_heads",
    "vocab", "task", "framework", "framework_ver", "gpu", "gpus_per_node", "n_gpus",
    "interconnect", "tp", "sp", "pp", "vpp", "cp", "ep", "etp", "dp", "dp_shard", "zero_stage",
    "mbs", "gbs", "grad_accum", "seq_len", "recompute", "precision", "optimizer", "pp_schedule",
    "compile", "attn", "offload", "status", "step_time_s", "tokens_s_gpu", "tflops_gpu",
    "tflops_kind", "mfu_pct", "rank_group", "tier", "stale", "flags", "note", "peak_mem_bytes",
    "mem_kind", "capacity_bytes", "time_s", "source", "source_loc",
)  # fmt: skip
"""Columns without which a file is none of this schema; others may be absent."""


class NotModelledError(Exception):
    """A row that no prediction can be made for; the message is the reason, in few words."""


@dataclass(frozen=True)
class TruthRow:
    """One published measurement: column -> text as in the file, empty where not stated."""

    columns: Mapping[str, str] = field(repr=False)

    @property
    def id(self) -> str:
        return self.columns["id"]

    def text(self, column: str) -> str:
        """The cell, empty where it is empty or the file has no such column."""
        return self.columns.get(column) or ""

    def number(self, column: str) -> float | None:
        """The cell as a number, None where it holds none."""
        try:
            return float(self.text(column))
        except ValueError:
            return None

    def whole(self, column: str) -> int | None:
        """The cell as a whole number, None where it holds no number."""
        value = self.number(column)
        return None if value is None else round(value)

    def flag(self, column: str) -> bool | None:
        """The cell as yes (``1``, ``yes``) or no (``0``, ``no``), None where it says neither."""
        words = {"1": True, "yes": True, "0": False, "no": False}
        return words.get(self.text(column).lower())

    def filled(self, column: str) -> str:
        """The cell as mended by ``fill_COLUMN`` where the source leaves it out or has it wrong."""
        return self.text(f"fill_{column}") or self.text(column)

    def required(self, column: str) -> int:
        """The mended cell as a whole number.

        Raises:
            NotModelledError: it holds none.
        """
        try:
            return round(float(self.filled(column)))
        except ValueError:
            raise NotModelledError(f"not stated: {column}") from None

    def completed(self, columns: Mapping[str, str]) -> "TruthRow":
        """The row with its empty cells filled from ``columns``."""
        filled = {name: text for name, text in columns.items() if not self.text(name)}
        return TruthRow({**self.columns, **filled})


def read_rows(path: Path) -> list[TruthRow]:
    """The rows of a CSV file of this schema, in order.

    Raises:
        InputError: the file cannot be read, lacks columns, holds no rows, or numbers that cannot be.
    """
    rows = [TruthRow(columns) for columns in read_table(path, REQUIRED_COLUMNS)]
    require_possible((row.columns for row in rows), f"measurements {path}")
    return rows
