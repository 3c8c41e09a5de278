"""Reduce measured tables of aiconfigurator-core to the small ones of ``meshfit.predict.costs.tables``.

    pip download --no-deps aiconfigurator-core==0.12.0 && unzip aiconfigurator_core-*.whl -d FOLDER
    python tools/reduce_tables.py FOLDER/aiconfigurator_core/systems/data OUT [--held-back FILE]

Needs numpy and pyarrow. The source (Apache-2.0, NVIDIA) has the time of single operations on one
accelerator. What is kept of it:

- ``matmul.csv``: achieved TFLOP/s on a grid of powers of two over (m, n, k), by a local linear fit
  in the logarithms of the dims, of the fastest kernel measured there. One row a (m, n), one column
  a k. Shapes whose m is no multiple of 64 are left out: training has none.
- ``attention.csv``: achieved TFLOP/s of causal forward attention without a window, on a grid of
  sequence length and (sequences x heads), by head dim, in 16 bits.
- ``collectives.csv``: microseconds of NCCL collectives inside one node by whole-buffer size.

A twentieth of the matmuls and of the attention shapes is kept out of the fits; what the reduced
tables say of them is printed, and a sample of them is what the tests look at.
"""

import argparse
import csv
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

CHIPS = {
    "a100_sxm": "A100",
    "h100_sxm": "H100",
    "h200_sxm": "H200",
    "b200_sxm": "B200",
    "b300_sxm": "B300",
    "gb200": "GB200",
    "gb300": "GB300",
    "l40s": "L40S",
    "rtx_pro_6000_server": "RTX-PRO-6000",
}
PRECISIONS = {"bfloat16": "bf16", "fp8": "fp8", "fp8_block": "fp8_block"}
M_GRID = [2**i for i in range(7, 16)]
NK_GRID = [2**i for i in range(7, 17)]
SEQUENCES = [2**i for i in range(8, 15)]
HEADS = [2**i for i in range(2, 10)]
HEAD_DIMS = (64, 128, 256)
SIZES = [2**i for i in range(12, 30, 1)]
COLLECTIVES = {"alltoall": "all_to_all"}
BANDWIDTH_OCTAVES = 0.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--held-back", type=Path)
    arguments = parser.parse_args()
    held_back: list[tuple[object, ...]] = []
    write(arguments.out / "matmul.csv", matmul_rows(arguments.data, held_back))
    write(arguments.out / "attention.csv", attention_rows(arguments.data, held_back))
    write(arguments.out / "collectives.csv", collective_rows(arguments.data))
    if arguments.held_back:
        header = ("table", "chip", "kind", "first", "second", "third", "tflops")
        write(arguments.held_back, [header, *held_back[:: max(1, len(held_back) // 400)]])


def write(path: Path, rows: Iterable[tuple[object, ...]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


def is_held_back(*key: object) -> bool:
    return zlib.crc32(repr(key).encode()) % 20 == 0


def columns(path: Path) -> Mapping[str, NDArray[np.generic]]:
    table = pq.read_table(path)
    return {name: np.asarray(table[name].to_pylist()) for name in table.column_names}


def matmul_rows(data: Path, held_back: list[tuple[object, ...]]) -> Iterable[tuple[object, ...]]:
    yield ("chip", "precision", "m", "n", *NK_GRID)
    for system, chip in CHIPS.items():
        for dtype, precision in PRECISIONS.items():
            fastest = fastest_matmuls(data / system / "gemm", dtype)
            if not fastest:
                continue
            kept = {key: s for key, s in fastest.items() if not is_held_back(chip, precision, *key)}
            grid = np.array([(m, n, k) for m in M_GRID for n in NK_GRID for k in NK_GRID])
            fitted = smooth(*rates_of(kept, matmul_flops), grid)
            report(f"matmul {chip} {precision}", kept, fastest, matmul_flops, held_back, chip)
            table = fitted.reshape(len(M_GRID), len(NK_GRID), len(NK_GRID))
            for i, m in enumerate(M_GRID):
                for j, n in enumerate(NK_GRID):
                    yield (chip, precision, m, n, *(significant(v) for v in table[i, j]))


def fastest_matmuls(folder: Path, dtype: str) -> dict[tuple[int, ...], float]:
    """(m, n, k) -> seconds, of the fastest of the runtimes that measured it."""
    fastest: dict[tuple[int, ...], float] = {}
    for path in sorted(folder.glob("*/*/gemm_perf.parquet")):
        read = columns(path)
        wanted = (read["gemm_dtype"] == dtype) & (read["m"] >= 64) & (read["m"] % 64 == 0)
        wanted &= (read["n"] >= 128) & (read["k"] >= 128)
        rows = zip(*(read[name][wanted] for name in ("m", "n", "k", "latency")), strict=True)
        for m, n, k, milliseconds in rows:
            key = (int(m), int(n), int(k))
            fastest[key] = min(fastest.get(key, np.inf), float(milliseconds) * 1e-3)
    return fastest


def matmul_flops(key: tuple[int, ...]) -> float:
    m, n, k = key
    return 2.0 * m * n * k


def attention_rows(data: Path, held_back: list[tuple[object, ...]]) -> Iterable[tuple[object, ...]]:
    yield ("chip", "head_dim", "heads", *SEQUENCES)
    for system, chip in CHIPS.items():
        for head_dim in HEAD_DIMS:
            fastest = fastest_attention(data / system / "attention", head_dim)
            if not fastest:
                continue
            kept = {key: s for key, s in fastest.items() if not is_held_back(chip, head_dim, *key)}

            def flops(key: tuple[int, ...], dim: int = head_dim) -> float:
                return 2.0 * key[0] * key[1] ** 2 * dim

            grid = np.array([(heads, sequence) for heads in HEADS for sequence in SEQUENCES])
            table = smooth(*rates_of(kept, flops), grid).reshape(len(HEADS), len(SEQUENCES))
            report(f"attention {chip} {head_dim}", kept, fastest, flops, held_back, chip)
            for heads, row in zip(HEADS, table, strict=True):
                yield (chip, head_dim, heads, *(significant(v) for v in row))


def fastest_attention(folder: Path, head_dim: int) -> dict[tuple[int, ...], float]:
    """(sequences x heads, sequence length) -> seconds: the median over ways to have them, of the
    fastest runtime's kernel for each."""
    found: dict[tuple[int, ...], dict[tuple[int, ...], float]] = defaultdict(dict)
    for path in sorted(folder.glob("*/*/context_attention_perf.parquet")):
        read = columns(path)
        wanted = (read["head_dim"] == head_dim) & (read["isl"] >= SEQUENCES[0])
        wanted &= read["batch_size"] * read["num_heads"] >= HEADS[0]
        wanted &= (read["attn_dtype"] == "bfloat16") & (read["kv_cache_dtype"] == "bfloat16")
        if "window_size" in read:
            wanted &= read["window_size"] == 0
        names = ("batch_size", "num_heads", "num_key_value_heads", "isl", "latency")
        for batch, heads, kv_heads, length, milliseconds in zip(
            *(read[name][wanted] for name in names), strict=True
        ):
            ways = found[int(batch * heads), int(length)]
            way = (int(heads), int(kv_heads))
            ways[way] = min(ways.get(way, np.inf), float(milliseconds) * 1e-3)
    return {key: float(np.median(list(ways.values()))) for key, ways in found.items()}


def rates_of(seconds, flops) -> tuple[FloatArray, FloatArray]:  # type: ignore[no-untyped-def]
    keys = np.array(list(seconds))
    rates = np.array([flops(key) / s for key, s in seconds.items()])
    return np.log2(keys), np.log2(rates / 1e12)


def smooth(at: FloatArray, values: FloatArray, grid: NDArray[np.int64]) -> FloatArray:
    """A local linear fit of ``values`` (logarithms) around every point of ``grid``."""
    out = []
    for point in np.log2(grid):
        offset = at - point
        distance = (offset**2).sum(axis=1)
        reach = max(BANDWIDTH_OCTAVES**2, float(np.partition(distance, 12)[12]) / 2)
        near = distance < 9 * reach
        weight = np.sqrt(np.exp(-distance[near] / (2 * reach)))
        terms = np.concatenate([np.ones((near.sum(), 1)), offset[near]], axis=1)
        fit, *_ = np.linalg.lstsq(terms * weight[:, None], values[near] * weight, rcond=None)
        bounded = np.clip(fit[0], values[near].min(), values[near].max())
        out.append(2**bounded)
    return np.array(out)


def report(  # noqa: PLR0917
    name, kept, all_of_them, flops, held_back, chip
) -> None:  # type: ignore[no-untyped-def]
    out = {key: s for key, s in all_of_them.items() if key not in kept}
    at, truth = rates_of(out, flops)
    table, kind = name.split()[0], name.split()[2]
    sample = list(out.items())[:: max(1, len(out) // 40)]
    for key, seconds in sample:
        padded = (*key, "") if len(key) == 2 else key
        held_back.append((table, chip, kind, *padded, significant(flops(key) / seconds / 1e12)))
    chosen = np.random.default_rng(0).permutation(len(truth))[:300]
    said = np.log2(smooth(*rates_of(kept, flops), 2 ** at[chosen]))
    error = np.abs(2 ** (said - truth[chosen]) - 1)
    print(
        f"{name:28} {len(all_of_them):6} shapes; held back: median {np.median(error):.1%}, "
        f"90th percentile {np.percentile(error, 90):.1%}",
        flush=True,
    )


def collective_rows(data: Path) -> Iterable[tuple[object, ...]]:
    yield ("chip", "collective", "ranks", *SIZES)
    for system, chip in CHIPS.items():
        curves = node_curves(data / system / "comm" / "nccl")
        for (collective, ranks), curve in sorted(curves.items()):
            sizes = np.log2(sorted(curve))
            times = np.log2([np.median(curve[size]) for size in sorted(curve)])
            row = 2 ** np.interp(np.log2(SIZES), sizes, times)
            yield (chip, collective, ranks, *(significant(v) for v in row))


def node_curves(folder: Path) -> dict[tuple[str, int], dict[int, list[float]]]:
    """(collective, ranks) -> whole-buffer bytes -> microseconds in each NCCL version; 16 bits."""
    curves: dict[tuple[str, int], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for path in sorted(folder.glob("*/nccl_perf.parquet")):
        read = columns(path)
        wanted = read["nccl_dtype"] == "half"
        names = ("op_name", "num_gpus", "message_size", "latency")
        for name, ranks, elements, milliseconds in zip(
            *(read[column][wanted] for column in names), strict=True
        ):
            collective = COLLECTIVES.get(str(name), str(name))
            curves[collective, int(ranks)][int(elements) * 2].append(float(milliseconds) * 1e3)
    return curves


def significant(value: float) -> str:
    return f"{value:.3g}"


if __name__ == "__main__":
    main()
