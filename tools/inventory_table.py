"""Prints a table of all model configs in a folder: counted by transformers, and by us.

    python tools/inventory_table.py FOLDER

A file holds a config under ``config``, and beside it ``counted`` (``total``, ``by_part``,
``active_per_token``) and ``kv_cache.bytes_per_token_bf16`` where these are known. Exit code 1 when a
figure differs.
"""

import argparse
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meshfit.errors import InputError
from meshfit.workload import counts
from meshfit.workload.families import read_family
from meshfit.workload.inventory import inventory

SEQUENCE_LENGTH = 4096


@dataclass(frozen=True, kw_only=True)
class Row:
    """What was expected of one config, what we count, and how long the inventory took."""

    name: str
    total: int | None
    expected: int | None
    differs: tuple[str, ...]
    active: int | None = None
    kv_bytes: int | None = None
    milliseconds: float = 0.0
    refused: str = ""


def row_of(document: dict[str, Any]) -> Row:
    """The comparison of one file."""
    counted = document.get("counted", {})
    start = time.perf_counter()
    try:
        model = read_family(document["id"], document["config"])
        found = inventory(model, SEQUENCE_LENGTH)
    except InputError as error:
        reason = str(error).partition(": ")[2]
        return Row(
            name=document["id"],
            total=None,
            expected=counted.get("total"),
            differs=(),
            refused=reason,
        )
    milliseconds = 1e3 * (time.perf_counter() - start)
    parameters, kv_bytes = found["parameters"], counts.kv_cache_bytes_per_token(model)
    figures = {
        "total": (parameters["total"], counted.get("total")),
        "active": (parameters["active"], counted.get("active_per_token")),
        "kv": (kv_bytes, (document.get("kv_cache") or {}).get("bytes_per_token_bf16")),
    }
    for part, ours in parameters["by_part"].items():
        figures[part] = (ours, counted["by_part"].get(part, 0) if "by_part" in counted else None)
    return Row(
        name=document["id"],
        total=parameters["total"],
        expected=counted.get("total"),
        differs=tuple(k for k, (a, b) in figures.items() if b is not None and a != b),
        active=parameters["active"],
        kv_bytes=kv_bytes,
        milliseconds=milliseconds,
    )


def line(row: Row) -> str:
    """One row of the table."""
    if row.refused:
        return f"{row.name:52} refused: {row.refused}"
    verdict = "exact" if row.expected is not None else "no count"
    if row.differs:
        verdict = "DIFFERS: " + ", ".join(row.differs)
    return (
        f"{row.name:52} {f'{row.expected:,}' if row.expected else '-':>15} {row.total:>15,} {row.active:>15,}"
        f" {row.kv_bytes:>9,} {row.milliseconds:5.1f} ms  {verdict}"
    )


def main() -> int:
    """Prints the table; 1 when anything differs, or a counted model is refused."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="folder of config files")
    files = sorted(parser.parse_args().folder.glob("*.json"))
    rows = [row_of(json.loads(file.read_text())) for file in files]
    print(f"{'model':52} {'counted':>15} {'ours':>15} {'active':>15} {'KV B/tok':>9} {'time':>8}")
    print("\n".join(map(line, rows)))
    wrong = [row for row in rows if row.differs or (row.refused and row.expected is not None)]
    exact = sum(row.expected is not None and row not in wrong for row in rows)
    print(f"{len(rows)} configs, {exact} with a count and exact, {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
