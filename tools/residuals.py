"""Predicted against printed, row by row, for one family of measurements: what is off, and where.

    python tools/residuals.py FAMILY [--memory | --time | --fits | --order | --wide]
                              [--file TRAINING.csv] [--terms]

Rows are sorted by error; ``--terms`` adds the breakdown. ``--fits`` lists wrong verdicts, ``--order``
(and ``--wide``) the groups in which pairs are ordered wrongly, fastest measured first. FAMILY may be
part of a name, or ``all``.
"""

import argparse
from pathlib import Path

from meshfit.units import format_bytes
from meshfit.validate.figures import figures_by_id
from meshfit.validate.order_scores import (
    comparable_groups,
    distinct_pairs,
    predicted_speed,
    share_right,
)
from meshfit.validate.predictions import RowPrediction, predict_rows
from meshfit.validate.rows import TruthRow, read_rows
from meshfit.validate.scored import fits_scored, memory_kind, memory_scored, time_scored

DEFAULT_FILE = Path(__file__).resolve().parents[2] / "shared" / "truth" / "training.csv"
DEGREES = ("tp", "sp", "pp", "cp", "dp", "zero_stage", "dp_shard", "mbs", "recompute")


def main() -> None:
    arguments = _arguments()
    rows = [r for r in read_rows(arguments.file) if _is_asked(r, arguments.family)]
    if arguments.fits:
        _show_fits(rows)
    elif arguments.order or arguments.wide:
        _show_order(rows, wide=arguments.wide)
    else:
        _show_errors(rows, arguments)


def _show_errors(rows: list[TruthRow], arguments: argparse.Namespace) -> None:
    scored = time_scored if arguments.time else memory_scored
    rows = [row for row in rows if scored(row)]
    line = _time_line if arguments.time else _memory_line
    lines = [line(p, terms=arguments.terms) for p in predict_rows(rows)]
    for error, text in sorted(lines, key=lambda pair: (pair[0] is None, pair[0] or 0.0)):
        print("   n/a  " if error is None else f"{error:+7.1%} ", text)


def _show_fits(rows: list[TruthRow]) -> None:
    """Rows that ran and were said not to fit, and that ran out of memory and were said to."""
    for predicted in predict_rows([row for row in rows if fits_scored(row)]):
        status, verdict = predicted.row.text("status"), predicted.verdict
        if (status, verdict) in (("ok", "does_not_fit"), ("oom", "fits")):
            assert predicted.job is not None
            assert predicted.prediction is not None
            memory = predicted.prediction.memory
            capacity = predicted.job.topology.accelerator.memory_bytes
            sizes = (memory.allocated, memory.reserved or 0, memory.context or 0, capacity)
            shown = " / ".join(map(format_bytes, sizes))
            print(f"{status} but {verdict}: {shown} {_what(predicted)}")


def _show_order(rows: list[TruthRow], *, wide: bool) -> None:
    speed = predicted_speed(figures_by_id(predict_rows(rows)))
    for points in comparable_groups(rows, wide=wide):
        pairs = distinct_pairs(points)
        right = sum(share_right(a, b, speed) for a, b in pairs)
        if right == len(pairs):
            continue
        first = points[0].row
        print(f"{right:g} of {len(pairs)} pairs: {first.text('model')} {first.text('rank_group')}")
        for point in sorted(points, key=lambda point: -point.speed):
            guess = speed(point.row)
            degrees = " ".join(f"{name}={point.row.text(name)}" for name in DEGREES)
            print(f"    {point.speed:10.1f} {guess or 0:10.1f}  {point.row.id} {degrees}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("family")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--memory", action="store_true", help="bytes of the row's own kind (default)")
    what.add_argument("--time", action="store_true", help="seconds of an optimizer step")
    what.add_argument("--fits", action="store_true", help="wrong verdicts")
    what.add_argument("--order", action="store_true", help="groups with pairs ordered wrongly")
    what.add_argument("--wide", action="store_true", help="the same within one source")
    parser.add_argument("--file", type=Path, default=DEFAULT_FILE)
    parser.add_argument("--terms", action="store_true", help="show the breakdown")
    return parser.parse_args()


def _is_asked(row: TruthRow, family: str) -> bool:
    return family == "all" or family in row.text("family")


def _memory_line(predicted: RowPrediction, *, terms: bool) -> tuple[float | None, str]:
    row, kind = predicted.row, memory_kind(predicted.row)
    value, truth = predicted.memory_of_kind(kind), row.number("peak_mem_bytes")
    if value is None or truth is None:
        return None, f"{row.id} {predicted.reason}"
    text = f"{format_bytes(round(value)):>10} of {format_bytes(round(truth)):>10} {kind:9} {_what(predicted)}"
    if terms and predicted.memory is not None:
        parts = predicted.memory.as_json().items()
        shown = (f"{name} {format_bytes(size)}" for name, size in parts if size)
        text += "\n         " + ", ".join(shown)
    return value / truth - 1, text


def _time_line(predicted: RowPrediction, *, terms: bool) -> tuple[float | None, str]:
    row, truth = predicted.row, predicted.row.number("time_s")
    if predicted.prediction is None or truth is None:
        return None, f"{row.id} {predicted.reason}"
    time = predicted.prediction.time
    text = f"{time.step:9.3f} of {truth:9.3f} s {_what(predicted)}"
    if terms:
        shown = (f"{name} {value:.3f}" for name, value in time.as_json().items() if value)
        text += "\n         " + ", ".join(shown)
    return time.step / truth - 1, text


def _what(predicted: RowPrediction) -> str:
    row, job = predicted.row, predicted.job
    assert job is not None
    training = job.training
    workload = (
        f"{row.text('model')} {row.text('n_gpus')}x{row.text('gpu')} s={training.sequence_length}"
        f" B={training.global_batch_size} {row.text('precision')}"
    )
    assumed = f" ({'; '.join(job.assumed)})" if job.assumed else ""
    return f"{row.id} {job.layout.label} | {workload} | {row.text('attn')}{assumed}"


if __name__ == "__main__":
    main()
