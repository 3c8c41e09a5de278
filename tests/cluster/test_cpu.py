import pytest

from meshfit.cluster.cpu import DEFAULT_CLOCK_HZ, read_cpu

CPUINFO = """processor\t: 0
model name\t: Some Processor
cpu MHz\t\t: 2000.000
flags\t\t: {flags}
"""


@pytest.mark.parametrize(
    ("flags", "fp32", "bf16"),
    [
        ("fpu sse2", 8, 8),
        ("sse2 avx", 16, 16),
        ("sse2 avx fma avx2", 32, 32),
        ("sse2 avx avx2 avx512f", 64, 64),
        ("avx2 avx512f avx512_bf16", 64, 128),
        ("avx2 avx512f avx512_bf16 amx_bf16", 64, 2048),
    ],
)
def test_peak_is_clock_times_vector_width(tmp_path, flags, fp32, bf16):
    path = tmp_path / "cpuinfo"
    path.write_text(CPUINFO.format(flags=flags))
    figures = read_cpu(path)
    assert figures.fp32_flops_per_s_per_core == fp32 * 2e9
    assert figures.bf16_flops_per_s_per_core == bf16 * 2e9
    assert figures.source.startswith("guess from Some Processor: 2.00 GHz")


def test_without_cpuinfo_a_stated_default_is_taken(tmp_path, monkeypatch):
    monkeypatch.setattr("meshfit.cluster.cpu.psutil.cpu_freq", lambda: None)
    figures = read_cpu(tmp_path / "missing")
    assert figures.fp32_flops_per_s_per_core == 8 * DEFAULT_CLOCK_HZ
    assert "unknown processor" in figures.source
