"""Rows of measured servers, and the layouts that tables mean."""

import pytest

from meshfit.errors import InputError
from meshfit.serve.setting.layout import DisaggregatedLayout, ServingLayout
from meshfit.validate.serving.rows import COLUMNS, layout_of, read_serving_rows

ROW = {
    "id": "one", "backend": "vllm", "backend_version": "0.19.0", "model_path": "Qwen/Qwen3-32B",
    "system": "h100_sxm", "precision": "fp8", "mode": "agg", "isl": "1024", "osl": "512",
    "gemm_quant_mode": "fp8", "moe_quant_mode": "fp8", "batch_size": "16", "tp_size": "4",
    "pp_size": "1", "attention_dp_size": "", "moe_tp_size": "1", "moe_ep_size": "1",
    "concurrency": "16", "ttft_ms": "200", "tpot_ms": "12.5",
}  # fmt: skip


def read(tmp_path, **cells):
    path = tmp_path / "rows.csv"
    row = ROW | cells
    path.write_text(f"{','.join(COLUMNS)}\n{','.join(row[name] for name in COLUMNS)}\n")
    return read_serving_rows(path)


def test_a_row_is_read_in_seconds(tmp_path):
    (row,) = read(tmp_path)
    assert (row.ttft_s, row.tpot_s) == pytest.approx((0.2, 0.0125))
    assert row.layout == ServingLayout(tp=4)
    assert row.concurrency == 16


@pytest.mark.parametrize(
    ("stated", "layout"),
    [
        ((8, 1, 1, 8, 1), ServingLayout(tp=8)),
        ((8, 1, 1, 1, 8), ServingLayout(tp=8, ep=8)),
        ((1, 1, 8, 1, 8), ServingLayout(attention_dp=8, ep=8)),
        ((64, 1, 1, 8, 8), ServingLayout(tp=8, ep=8)),
        ((1, 1, 64, 8, 8), ServingLayout(attention_dp=8, ep=8)),
        ((4, 1, 4, 1, 16), ServingLayout(attention_dp=4, ep=4)),
        ((4, 1, 1, 2, 2), ServingLayout(tp=4, ep=2)),
        ((2, 4, 1, 1, 1), ServingLayout(tp=2, pp=4)),
    ],
)
def test_layouts_are_those_that_fit_a_node(stated, layout):
    assert layout_of(*stated) == layout


def test_two_pools_have_no_layout_of_one(tmp_path):
    (row,) = read(tmp_path, mode="disagg", tp_size="", pp_size="")
    assert row.layout is None
    assert row.pools is None


def test_two_pools_are_read_where_their_workers_are_stated(tmp_path):
    sizes = ("num_workers", "tp_size", "pp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size")
    prefill = dict(zip((f"prefill_{name}" for name in sizes), "711414", strict=True))
    decode = dict(zip((f"decode_{name}" for name in sizes), "281118", strict=True))
    row = ROW | {"mode": "disagg"} | prefill | decode
    path = tmp_path / "rows.csv"
    path.write_text(f"{','.join(row)}\n{','.join(row.values())}\n")
    (found,) = read_serving_rows(path)
    assert found.pools == DisaggregatedLayout(
        prefill=ServingLayout(replicas=7, attention_dp=4, ep=4),
        decode=ServingLayout(replicas=2, tp=8, ep=8),
    )


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ({"ttft_ms": "-3"}, "ttft_ms is '-3'; expected milliseconds above 0"),
        ({"tpot_ms": "nan"}, "tpot_ms is 'nan'"),
        ({"isl": ""}, "isl is ''; expected a number of tokens"),
        ({"tp_size": "two"}, "tp_size is 'two'; expected a whole number"),
    ],
)
def test_what_no_server_has_is_refused(tmp_path, cells, message):
    with pytest.raises(InputError, match=message):
        read(tmp_path, **cells)


def test_an_empty_table_is_refused(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text(",".join(COLUMNS) + "\n")
    with pytest.raises(InputError, match="holds no rows"):
        read_serving_rows(path)
