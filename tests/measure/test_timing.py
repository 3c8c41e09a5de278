import time

import pytest


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


class Device:
    """A device that takes work at once and does it later, with events in its stream."""

    def __init__(self) -> None:
        self.queued_s = 0.0
        self.done_s = 0.0

    def launch(self, seconds: float) -> None:
        self.queued_s += seconds

    def mark(self) -> float:
        return self.queued_s

    def settle(self) -> None:
        self.done_s = self.queued_s

    def seconds(self, begin: float, end: float) -> float:
        assert end <= self.done_s, "read before the device got there"
        return end - begin


@pytest.fixture
def clock_of(torch):
    from meshfit.measure.timing import StepClock

    return lambda boundaries=None: StepClock(torch.device("cpu"), boundaries)


def test_f11_queued_work_is_charged_to_the_step_that_launched_it(clock_of):
    """Without synchronisation the first step looks fast and later ones slow."""
    device = Device()
    clock = clock_of(device)
    for _ in range(3):
        with clock.step():
            device.launch(0.5)
    assert clock.step_s() == (0.5, 0.5, 0.5)


def test_on_the_cpu_a_step_takes_its_host_time(clock_of):
    clock = clock_of()
    with clock.step():
        time.sleep(0.02)
    (seconds,) = clock.step_s()
    assert 0.02 <= seconds < 0.5


def test_waiting_for_input_is_told_apart_and_is_part_of_the_step(clock_of):
    clock = clock_of()
    with clock.step():
        with clock.input_wait():
            time.sleep(0.01)
        with clock.input_wait():
            time.sleep(0.01)
    with clock.step():
        pass
    first, second = clock.input_wait_s()
    assert 0.02 <= first <= clock.step_s()[0]
    assert second == 0.0


def test_a_pause_does_not_count(clock_of):
    device = Device()
    clock = clock_of(device)
    with clock.step():
        device.launch(1.0)
        with clock.pause():
            device.launch(10.0)
        device.launch(0.25)
    assert clock.step_s() == (1.25,)


def test_a_step_that_fails_leaves_no_time(clock_of):
    device = Device()
    clock = clock_of(device)
    with clock.step():
        device.launch(1.0)
    with pytest.raises(RuntimeError), clock.step():
        raise RuntimeError("out of memory")
    assert clock.step_s() == (1.0,)
    assert len(clock.input_wait_s()) == 1


def test_what_waits_outside_of_a_step_counts_nowhere(clock_of):
    clock = clock_of()
    with clock.input_wait():
        time.sleep(0.01)
    with clock.step():
        pass
    with clock.input_wait():
        time.sleep(0.01)
    assert clock.input_wait_s() == (0.0,)


def test_the_clock_costs_a_step_next_to_nothing(clock_of):
    clock = clock_of()
    for _ in range(1000):
        with clock.step():
            pass
    assert sum(clock.step_s()) / 1000 < 50e-6


@pytest.mark.gpu
def test_on_cuda_a_step_takes_what_the_device_took(torch):
    from meshfit.measure.timing import StepClock

    clock = StepClock(torch.device("cuda"))
    matrix = torch.randn(4096, 4096, device="cuda")
    for _ in range(2):
        begin = time.perf_counter()
        with clock.step():
            for _ in range(20):
                matrix = (matrix @ matrix).clamp(-1, 1)
        launched_s = time.perf_counter() - begin
    assert clock.step_s()[1] > launched_s
