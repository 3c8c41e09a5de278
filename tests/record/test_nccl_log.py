import pytest

from meshfit.errors import InputError
from meshfit.record.nccl_log import read_nccl_log

HEAD = """\
# Collective test starting: {name}_perf
# nThread 1 nGpus 1 minBytes 1024 maxBytes 4096 step: 2(factor) warmup iters: 5 iters: 20
#
# Using devices
"""
TABLE = """\
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
        1024           256     float     sum      -1    20.00    0.05    0.09      0    21.10    0.05    0.08      0
     1048576        262144     float     sum      -1    40.00   26.21   45.88      0    41.00   25.58   44.76      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 22.0
"""


def ranks(hosts):
    return "".join(
        f"#  Rank {rank:2} Group  0 Pid {4000 + rank} on {host:>8} device {rank:2} [0x53] "
        f"NVIDIA H100 80GB HBM3\n"
        for rank, host in enumerate(hosts)
    )


def log(folder, text, name="run.log"):
    path = folder / name
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("name", "collective"),
    [("all_reduce", "all_reduce"), ("alltoall", "all_to_all"), ("sendrecv", "send_recv")],
)
def test_a_log_becomes_a_curve_by_out_of_place_times(tmp_path, name, collective):
    text = HEAD.format(name=name) + ranks(["n1"] * 8) + TABLE
    found = read_nccl_log(log(tmp_path, text))
    assert found.curve.collective == collective
    assert found.curve.members == (8,)
    assert [(p.size_bytes, p.seconds) for p in found.curve.points] == [
        (1024, pytest.approx(20e-6)),
        (1048576, pytest.approx(40e-6)),
    ]
    assert found.device == "NVIDIA H100 80GB HBM3"


def test_bus_bandwidth_is_the_one_that_the_log_prints(tmp_path):
    text = HEAD.format(name="all_reduce") + ranks(["n1"] * 8) + TABLE
    point = read_nccl_log(log(tmp_path, text)).curve.points[-1]
    assert point.algorithm_bytes_per_s == pytest.approx(26.21e9, rel=1e-3)
    assert point.bus_bytes_per_s == pytest.approx(45.88e9, rel=1e-3)


def test_ranks_of_several_hosts_are_counted(tmp_path):
    text = HEAD.format(name="all_reduce") + ranks(["n1"] * 2 + ["n2"] * 2) + TABLE
    found = read_nccl_log(log(tmp_path, text))
    assert found.curve.members == (2, 2)
    assert found.ranks_per_host == 2


def test_the_files_name_says_what_an_old_log_does_not(tmp_path):
    path = log(tmp_path, ranks(["n1"] * 2) + TABLE, "all_gather_perf.txt")
    assert read_nccl_log(path).curve.collective == "all_gather"
    with pytest.raises(InputError, match="does not say which collective"):
        read_nccl_log(log(tmp_path, ranks(["n1"] * 2) + TABLE))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hello\n", "no log of nccl-tests"),
        (ranks(["n1"] * 2), "no head"),
        (ranks(["n1", "n1", "n2"]) + TABLE, "different numbers of ranks"),
        (ranks(["n1"]) + TABLE.replace("     sum      -1    40.00", ""), "garbled|cut off"),
        (ranks(["n1"]) + TABLE[: TABLE.index("    40.00")], "cut off"),
    ],
)
def test_other_files_and_cut_ones_are_refused(tmp_path, text, said):
    with pytest.raises(InputError, match=said):
        read_nccl_log(log(tmp_path, text, "all_reduce.log"))
