import pytest

from meshfit.breakdown import MemoryBreakdown


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


def test_the_resident_peak_grows_with_what_is_touched_and_never_shrinks(torch):
    import psutil

    from meshfit.measure.resident import peak_resident_bytes

    before = peak_resident_bytes()
    size_bytes = before - psutil.Process().memory_info().rss + 64 * 2**20
    block = torch.ones(size_bytes, dtype=torch.uint8)
    after = peak_resident_bytes()
    assert after >= before + 32 * 2**20
    del block
    assert peak_resident_bytes() >= after


def test_the_cpu_has_no_allocator_peaks_and_leaves_tracked_memory_as_it_is(torch):
    from meshfit.measure.resident import device_memory, reset_device_peak, with_device_memory

    cpu = torch.device("cpu")
    reset_device_peak(cpu)
    assert device_memory(cpu) is None
    tracked = MemoryBreakdown(parameters=10)
    assert with_device_memory(tracked, None) == tracked


def test_what_the_allocator_held_beyond_tracked_tensors_is_unattributed(torch):
    from meshfit.measure.resident import DeviceMemory, with_device_memory

    device = DeviceMemory(allocated=120, reserved=150, context=30)
    found = with_device_memory(MemoryBreakdown(parameters=90, unattributed=10), device)
    assert (found.unattributed, found.allocated) == (30, 120)
    assert (found.reserved, found.context, found.total) == (150, 30, 180)


def test_tracked_tensors_beyond_the_allocators_peak_take_nothing_away(torch):
    from meshfit.measure.resident import DeviceMemory, with_device_memory

    device = DeviceMemory(allocated=80, reserved=150, context=None)
    found = with_device_memory(MemoryBreakdown(parameters=90), device)
    assert (found.unattributed, found.total) == (0, 150)


@pytest.mark.gpu
def test_on_cuda_peaks_count_from_their_reset(torch):
    from meshfit.measure.resident import device_memory, reset_device_peak

    device = torch.device("cuda", 0)
    reset_device_peak(device)
    block = torch.zeros(2**24, dtype=torch.uint8, device=device)
    found = device_memory(device)
    assert found.reserved >= found.allocated >= block.nbytes
