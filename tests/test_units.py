import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshfit import units
from meshfit.errors import InputError


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("80 GiB", 80 * 2**30), ("80GB", 80 * 10**9), ("2 tib", 2 * 2**40), ("512", 512), (7, 7)],
)
def test_binary_and_decimal_sizes_are_kept_apart(text, size_bytes):
    assert units.parse_bytes(text) == size_bytes


@pytest.mark.parametrize("text", ["400 gb/s", "400 gbps", "10 kb/s"])
def test_a_rate_that_may_be_of_bits_or_of_bytes_is_refused(text):
    with pytest.raises(InputError, match="bits or bytes"):
        units.parse_bandwidth(text)


@pytest.mark.parametrize(
    ("text", "bytes_per_s"),
    [
        ("450 GB/s", 450e9), ("400 Gb/s", 50e9), ("400Gbit/s", 50e9), ("200 Mbps", 25e6),
        ("400 gbit/s", 50e9), ("400 Gbitps", 50e9), ("25 GBps", 25e9), ("1 GiB/s", 2**30),
    ],
)  # fmt: skip
def test_bits_and_bytes_a_second_are_kept_apart(text, bytes_per_s):
    assert units.parse_bandwidth(text) == pytest.approx(bytes_per_s)


@pytest.mark.parametrize(("text", "seconds"), [("14 us", 14e-6), ("2.5ms", 2.5e-3), ("3 h", 10800)])
def test_durations_are_seconds(text, seconds):
    assert units.parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(("text", "count"), [("4M", 4_000_000), ("15T", 15 * 10**12), ("128", 128)])
def test_counts_are_powers_of_ten(text, count):
    assert units.parse_count(text) == count


@pytest.mark.parametrize(("text", "fraction"), [("10%", 0.1), (0.1, 0.1), ("0.25", 0.25)])
def test_fractions(text, fraction):
    assert units.parse_fraction(text) == pytest.approx(fraction)


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (units.parse_bytes, "80 GX"),
        (units.parse_bytes, "many"),
        (units.parse_bytes, ""),
        (units.parse_bandwidth, "450 GB"),
        (units.parse_bandwidth, "fast"),
        (units.parse_duration, "3 fortnights"),
        (units.parse_count, "1.5"),
        (units.parse_count, "-3"),
        (units.parse_count, "1e999"),
        (units.parse_bytes, "1e999 GiB"),
        (units.parse_bandwidth, "1e999 GB/s"),
        (units.parse_duration, "1e999 s"),
        (units.parse_duration, float("nan")),
        (units.parse_bandwidth, float("inf")),
        (units.parse_fraction, "110%"),
        (units.parse_fraction, -0.1),
        (units.parse_fraction, "1 of 10"),
    ],
)
def test_what_is_no_quantity_is_refused_with_its_text(parse, text):
    with pytest.raises(InputError) as caught:
        parse(text)
    assert repr(text) in str(caught.value)


@given(st.integers(min_value=0, max_value=2**60))
def test_a_shown_size_reads_back_within_its_digits(size_bytes):
    assert units.parse_bytes(units.format_bytes(size_bytes)) == pytest.approx(size_bytes, rel=0.006)


@given(st.floats(min_value=1e-8, max_value=59))
def test_a_shown_duration_reads_back_within_its_digits(seconds):
    assert units.parse_duration(units.format_duration(seconds)) == pytest.approx(
        seconds, rel=0.006, abs=6e-10
    )
