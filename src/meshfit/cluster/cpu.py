"""What a processor core can be expected to do. Guesses from its data sheet side, marked as such.

They order layouts on CPU ranks only roughly; a calibration replaces them.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import psutil

DEFAULT_CLOCK_HZ = 2.5e9
"""Where neither /proc/cpuinfo nor the operating system says."""

_FP32_PER_CYCLE = {"avx512f": 64, "avx2": 32, "avx": 16, "asimd": 16, "sse2": 8}
"""Multiply-adds count two: registers of 512, 256, 256, 128 and 128 bits, two vector units each
(avx and sse2 without fused multiply-add). Widest first."""
_BF16_PER_CYCLE = {"amx_bf16": 2048, "avx512_bf16": 128}
"""Processors without these compute bf16 in fp32 units."""


@dataclass(frozen=True, kw_only=True)
class CpuFigures:
    """Figures of one core, and what all cores of the host share."""

    fp32_flops_per_s_per_core: float
    bf16_flops_per_s_per_core: float
    matmul_fraction: float = 0.5
    memory_bytes_per_s: float = 20e9
    loopback_bytes_per_s: float = 1e9
    loopback_latency_s: float = 100e-6
    source: str


def read_cpu(path: Path = Path("/proc/cpuinfo")) -> CpuFigures:
    """Peak rates from clock and vector width; everything else is a round guess."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    flags = set(_field(text, r"flags|Features").lower().split())
    clock_hz = _clock_hz(text)
    fp32 = _rate(_FP32_PER_CYCLE, flags, otherwise=8)
    bf16 = _rate(_BF16_PER_CYCLE, flags, otherwise=fp32)
    model = _field(text, "model name") or "unknown processor"
    return CpuFigures(
        fp32_flops_per_s_per_core=fp32 * clock_hz,
        bf16_flops_per_s_per_core=bf16 * clock_hz,
        source=f"guess from {model}: {clock_hz / 1e9:.2f} GHz, {fp32} fp32 operations a cycle",
    )


def _rate(per_cycle: dict[str, int], flags: set[str], otherwise: int) -> int:
    return next((rate for flag, rate in per_cycle.items() if flag in flags), otherwise)


def _clock_hz(text: str) -> float:
    """The clock now in /proc/cpuinfo, else the operating system's highest."""
    megahertz = _field(text, "cpu MHz")
    if megahertz:
        return float(megahertz) * 1e6
    frequency = psutil.cpu_freq()
    if frequency is None or not frequency.max:
        return DEFAULT_CLOCK_HZ
    return float(frequency.max) * 1e6


def _field(text: str, name: str) -> str:
    """Value of the first line ``name : value``."""
    match = re.search(rf"^(?:{name})\s*:\s*(.*)$", text, re.MULTILINE)
    return match.group(1).strip() if match else ""
