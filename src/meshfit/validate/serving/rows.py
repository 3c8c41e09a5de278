"""Rows of a table of measured servers: time to first token and per token under stated layouts."""

import math
from dataclasses import dataclass, replace
from pathlib import Path

from meshfit.errors import InputError
from meshfit.serve.setting.layout import DisaggregatedLayout, ServingLayout
from meshfit.validate.csv_file import read_table

COLUMNS: tuple[str, ...] = (
    "id", "backend", "backend_version", "model_path", "system", "precision", "mode", "isl", "osl",
    "gemm_quant_mode", "moe_quant_mode", "batch_size", "tp_size", "pp_size", "attention_dp_size",
    "moe_tp_size", "moe_ep_size", "concurrency", "ttft_ms", "tpot_ms",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ServingRow:
    """One measured server in a closed loop: ``concurrency`` requests in flight, equal lengths.

    ``tpot_s`` leaves the first token out: (end to end - ttft) / (tokens - 1).

    Attributes:
        system: name of the accelerators (``h100_sxm``).
        aggregated: whether prompts and decoding share the accelerators; else it has two pools.
        linear_mode, expert_mode: how linear maps and routed experts are quantised, in the table's
            words (``fp8_block``; empty: as the model is).
        layout: of an aggregated row; None of others.
        pools: of a row with two; None where the table does not say how many workers they have.
        stated: the cells that the layout was read from.
        concurrency: of all replicas; None where it is not stated.
    """

    id: str
    backend: str
    release: str
    model: str
    system: str
    precision: str
    linear_mode: str
    expert_mode: str
    aggregated: bool
    prompt_tokens: int
    output_tokens: int
    layout: ServingLayout | None
    pools: DisaggregatedLayout | None = None
    stated: tuple[int, ...]
    concurrency: int | None
    ttft_s: float
    tpot_s: float

    @property
    def configuration(self) -> tuple[object, ...]:
        """What repeats of one measurement share."""
        where = self.layout or self.pools
        return (*self.group, self.release, where, self.stated, self.concurrency)

    @property
    def group(self) -> tuple[object, ...]:
        """What rows share whose layouts can be compared."""
        return (
            self.model, self.system, self.backend, self.precision, self.linear_mode,
            self.prompt_tokens, self.output_tokens,
        )  # fmt: skip


def read_serving_rows(path: Path) -> list[ServingRow]:
    """The rows of a CSV file, in order.

    Raises:
        InputError: the file cannot be read, lacks columns, holds no rows or what no server has.
    """
    found = read_table(path, COLUMNS)
    if not found:
        raise InputError(f"measurements {path} holds no rows")
    return [_row(cells, f"{path}:{line}") for line, cells in enumerate(found, start=2)]


def _row(cells: dict[str, str], where: str) -> ServingRow:
    aggregated = cells["mode"] == "agg"
    sizes = ("tp_size", "pp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size")
    stated = tuple(_count(cells, name, where) or 1 for name in sizes) if aggregated else ()
    return ServingRow(
        id=cells["id"],
        backend=cells["backend"],
        release=cells["backend_version"],
        model=cells["model_path"],
        system=cells["system"],
        precision=cells["precision"],
        linear_mode=cells["gemm_quant_mode"],
        expert_mode=cells["moe_quant_mode"],
        aggregated=aggregated,
        prompt_tokens=_required(cells, "isl", where),
        output_tokens=_required(cells, "osl", where),
        layout=layout_of(*stated) if aggregated else None,
        pools=None if aggregated else _pools(cells, where),
        stated=stated,
        concurrency=_count(cells, "concurrency", where) or _count(cells, "batch_size", where),
        ttft_s=_seconds(cells, "ttft_ms", where),
        tpot_s=_seconds(cells, "tpot_ms", where),
    )


def _pools(cells: dict[str, str], where: str) -> DisaggregatedLayout | None:
    prefill, decode = (_pool(cells, kind, where) for kind in ("prefill", "decode"))
    if prefill is None or decode is None:
        return None
    return DisaggregatedLayout(prefill=prefill, decode=decode)


def _pool(cells: dict[str, str], kind: str, where: str) -> ServingLayout | None:
    sizes = ("tp", "pp", "attention_dp", "moe_tp", "moe_ep")
    names = [f"{kind}_num_workers", *(f"{kind}_{size}_size" for size in sizes)]
    if not all(cells.get(name) for name in names):
        return None
    workers, *stated = (_count(cells, name, where) or 1 for name in names)
    return replace(layout_of(*stated), replicas=workers)


def layout_of(
    tp: int, pp: int, attention_dp: int, expert_tp: int, expert_parallel: int
) -> ServingLayout:
    """The layout that sizes state: tp x attention_dp = expert_tp x ep ranks a stage.

    Two spellings in tables say a product where one factor is meant, on nodes of 8: one that squares
    the ranks (``tp 64, moe_tp 8, ep 8`` on one node are 8 ranks that share attention by tp, or with
    ``attention_dp 64`` by data parallelism, and experts by ep), and one that counts data-parallel
    attention in tp as well (``tp 4, attention_dp 4, ep 16`` are 4 ranks).
    """
    ranks = tp * attention_dp
    if ranks > _NODE and expert_tp == expert_parallel and expert_tp**2 == ranks:
        is_data_parallel = attention_dp > 1
        return ServingLayout(
            tp=1 if is_data_parallel else expert_tp,
            attention_dp=expert_tp if is_data_parallel else 1,
            ep=expert_tp,
            pp=pp,
        )
    if attention_dp > 1 and tp == attention_dp and expert_parallel == ranks:
        return ServingLayout(tp=1, attention_dp=tp, ep=tp, pp=pp)
    return ServingLayout(tp=tp, attention_dp=attention_dp, ep=min(expert_parallel, ranks), pp=pp)


_NODE = 8


def _count(cells: dict[str, str], name: str, where: str) -> int | None:
    text = cells[name]
    if not text:
        return None
    if not text.isdigit() or len(text) > 9:
        raise InputError(f"{where}: {name} is {text!r}; expected a whole number")
    return int(text) or None


def _required(cells: dict[str, str], name: str, where: str) -> int:
    value = _count(cells, name, where)
    if value is None:
        raise InputError(f"{where}: {name} is {cells[name]!r}; expected a number of tokens")
    return value


def _seconds(cells: dict[str, str], name: str, where: str) -> float:
    try:
        seconds = float(cells[name]) * 1e-3
    except ValueError:
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds > 0):
        raise InputError(f"{where}: {name} is {cells[name]!r}; expected milliseconds above 0")
    return seconds
