"""Logs of every engine, as terminals, launchers and restarts leave them."""

import json
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshfit.engines.logs.read import read_log
from meshfit.errors import InputError
from tests.engines.logs import samples


@pytest.fixture
def written(tmp_path):
    """A log of these lines, read."""

    def read(lines, *, job=None, end="\n"):
        path = tmp_path / "train.log"
        path.write_bytes(("\n".join(lines) + end).encode())
        return read_log(path, job or {})

    return read


def titan_run(first, last, *, at_s=0.0):
    """A line a second from ``at_s`` on."""
    steps = [samples.titan_step(n, at_s + n - first + 1) for n in range(first, last + 1)]
    return [*samples.titan_start(at_s, first_step=first), *steps]


def step_numbers(log):
    return [one.step for one in log.steps]


# What each engine prints.


def test_torchtitan_prints_tokens_a_second_of_a_rank_and_what_makes_a_step(written):
    log = written(titan_run(1, 3))
    assert (log.engine, log.form, log.num_starts) == ("torchtitan", "torchtitan's console", 1)
    assert log.stated["world_size"] == 4
    assert (log.stated["global_batch_size"], log.stated["sequence_length"]) == (8, 64)
    step = log.steps[1]
    assert step.step_s == pytest.approx(8 * 64 / (1280 * 4))
    assert (step.loss, step.gradient_norm, step.mfu) == (7.98, 1.25, 0.415)
    assert step.flops_per_s == pytest.approx(1012.3e12)
    assert log.memory.reserved == round(5.12 * 2**30)
    assert log.memory.allocated is None
    assert "tokens a second" in log.step_time_from


def test_torchtitan_without_its_first_lines_is_timed_by_its_clock(written):
    log = written([samples.titan_step(n, 0.25 * n) for n in (1, 10, 20)])
    assert [one.step_s for one in log.steps] == [None, pytest.approx(0.25), pytest.approx(0.25)]
    assert [one.num_steps for one in log.steps] == [1, 9, 10]
    assert "time between the lines" in log.step_time_from
    assert log.stated == {}


def test_what_a_job_says_stands_in_for_what_a_log_leaves_out(written):
    job = {"world_size": 4, "global_batch_size": 8, "sequence_length": 64}
    log = written([samples.titan_step(1, 0.0)], job=job)
    assert log.steps[0].step_s == pytest.approx(0.1)
    assert log.stated == {}


def test_a_validation_of_torchtitan_is_no_step(written):
    log = written([*titan_run(1, 2), samples.titan_validation(2, 3.0)])
    assert step_numbers(log) == [1, 2]
    assert log.memory.reserved == round(5.12 * 2**30)


def test_a_release_of_torchtitan_without_flops_and_peak_is_read(written):
    line = "[titan] 2026-11-29 10:00:01,000 - root - INFO - step:  5  loss:  3.5  memory: 1.50GiB(2.00%)  wps: 1,000  mfu: N/A"
    step = written([line]).steps[0]
    assert (step.step, step.loss, step.mfu, step.flops_per_s) == (5, 3.5, None, None)


def test_megatron_prints_times_batch_and_memory_of_ranks(written):
    arguments = samples.megatron_arguments(
        world_size=8, seq_length=64, tensor_model_parallel_size=2, pipeline_model_parallel_size=2,
        context_parallel_size=1, global_batch_size=8, num_layers=4,
    )  # fmt: skip
    memory = [samples.megatron_memory(0, 200, 300.5), samples.megatron_memory(4, 250.25, 280)]
    log = written(
        [*arguments, samples.MEGATRON_START, samples.megatron_step(1, milliseconds=900),
         *memory, samples.megatron_step(10)]
    )  # fmt: skip
    assert log.engine == "megatron"
    assert log.stated == {
        "world_size": 8, "sequence_length": 64, "tp": 2, "pp": 2, "cp": 1, "global_batch_size": 8,
    }  # fmt: skip
    assert [one.step_s for one in log.steps] == [0.9, 0.25]
    assert [one.num_steps for one in log.steps] == [1, 10]
    assert (log.steps[0].loss, log.steps[0].gradient_norm) == (9.5, 2.345)
    assert log.memory.allocated == round(250.25 * 2**20)
    assert log.memory.allocated_rank == 4
    assert log.memory.reserved == round(300.5 * 2**20)
    assert log.memory.reserved_rank == 0
    assert "no peak" in log.absent["mfu"]


def test_a_batch_that_grows_is_kept_with_each_step_of_megatron(written):
    log = written([samples.megatron_step(1, batch=8), samples.megatron_step(2, batch=16)])
    assert [one.global_batch_size for one in log.steps] == [8, 16]


def test_deepspeed_prints_sequences_a_second_of_all_ranks(written):
    lines = [
        *samples.deepspeed_start(batch=8),
        samples.deepspeed_progress(10, 5.0),
        samples.deepspeed_speed(10, 5.0),
        samples.DEEPSPEED_USAGE,
    ]
    log = written(lines)
    assert (log.engine, log.engine_version) == ("deepspeed", "0.19.8")
    assert log.stated == {"global_batch_size": 8}
    assert [one.step_s for one in log.steps] == [0.5]
    assert log.memory.allocated == round(6.75 * 2**30)
    assert log.memory.reserved == 9 * 2**30
    assert "training script" in log.absent["loss"]


def test_deepspeed_without_its_batch_has_no_step_time_until_a_job_says_it(written):
    lines = [samples.deepspeed_speed(10, 5.0)]
    assert "no global batch" in written(lines).absent["step_time"]
    assert written(lines, job={"global_batch_size": 32}).steps[0].step_s == 2.0


def test_deepspeed_without_throughput_is_timed_by_its_clock(written):
    log = written([samples.deepspeed_progress(n, n * 0.5) for n in (10, 20)])
    assert log.steps[1].step_s == pytest.approx(0.5)


def test_deepspeeds_pipeline_engine_prints_loss_and_time(written):
    step = written([samples.deepspeed_pipeline(10)]).steps[0]
    assert (step.loss, step.step_s) == (7.25, 0.125)


def test_the_trainers_console_has_losses_but_no_numbers_of_steps(written):
    lines = [samples.trainer_line(9.0 - n, n / 2) for n in range(3)]
    log = written([*samples.TRAINER_START, *lines, samples.TRAINER_END])
    assert log.engine == "accelerate"
    assert log.stated == {"global_batch_size": 1024}
    assert [one.loss for one in log.steps] == [9.0, 8.0, 7.0]
    assert log.run_mean_step_s == 0.5
    assert "does not number" in log.absent["step_time"]
    assert any("trainer_state.json" in note for note in log.notes)


def test_a_console_of_transformers_4_has_bare_numbers(written):
    lines = ["{'loss': 8.25, 'grad_norm': nan, 'learning_rate': 2e-05, 'epoch': 0.5}"]
    step = written(lines).steps[0]
    assert step.loss == 8.25
    assert math.isnan(step.gradient_norm)


def test_the_trainers_state_file_numbers_steps_and_has_times(tmp_path):
    path = tmp_path / "trainer_state.json"
    entries = [samples.trainer_entry(n, 0.5 * n) for n in (2, 4, 6)]
    entries.append({"max_memory_allocated": 2**20, "max_memory_reserved": 2**21, "step": 6})
    path.write_text(json.dumps(samples.trainer_state(entries), indent=2))
    log = read_log(path)
    assert step_numbers(log) == [2, 4, 6]
    assert [one.step_s for one in log.steps] == [None, 0.5, 0.5]
    assert (log.memory.allocated, log.memory.reserved) == (2**20, 2**21)
    assert log.notes == ()


def test_the_trainers_clock_times_the_first_step_too(tmp_path):
    path = tmp_path / "trainer_state.json"
    path.write_text(json.dumps(samples.trainer_state([samples.trainer_entry(1, 2.5)])))
    assert read_log(path).steps[0].step_s == 2.5


def test_the_trainers_own_tracker_of_memory_adds_up_to_a_peak(tmp_path):
    path = tmp_path / "trainer_state.json"
    tracked = {
        "before_init_mem_gpu": 100, "init_mem_gpu_alloc_delta": 20, "train_mem_gpu_alloc_delta": 3,
        "train_mem_gpu_peaked_delta": 4, "train_steps_per_second": 2.0, "step": 2,
    }  # fmt: skip
    entries = [samples.trainer_entry(2, 1.0), tracked]
    path.write_text(json.dumps(samples.trainer_state(entries)))
    assert read_log(path).memory.allocated == 127


# What terminals, launchers and accidents make of it.


@pytest.mark.parametrize(
    "prefix", ["[rank0]:", "[default7]:", "0: ", "[1,0]<stdout>:", "worker-3: "]
)
def test_what_launchers_put_in_front_of_a_line_is_not_part_of_it(written, prefix):
    bare, marked = written(titan_run(1, 3)), written([prefix + line for line in titan_run(1, 3)])
    assert marked == bare


def test_ranks_that_all_print_are_one_run_and_the_slowest_counts(written):
    lines = samples.titan_start()
    for step in (1, 2, 3):
        for rank in range(4):
            lines.append(
                f"[rank{rank}]:" + samples.titan_step(step, step, tps=1000 + rank, memory=rank + 1)
            )
    log = written(lines)
    assert (step_numbers(log), log.num_starts) == ([1, 2, 3], 1)
    assert log.steps[0].step_s == pytest.approx(8 * 64 / (1000 * 4))
    assert log.memory.reserved == 4 * 2**30


@pytest.mark.parametrize("mark", ["", "[rank0]:"])
def test_ranks_under_one_mark_may_overtake_each_other_by_a_step(written, mark):
    order = (1, 1, 2, 1, 2, 2, 3, 3, 3)
    log = written([mark + samples.titan_step(n, float(n)) for n in order])
    assert (step_numbers(log), log.num_starts) == ([1, 2, 3], 1)


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32 - 1), marks=st.permutations(range(4)))
def test_however_the_lines_of_ranks_are_mixed_a_log_reads_alike(tmp_path_factory, seed, marks):
    random_order = random.Random(seed)
    queues = [
        [
            *samples.titan_start(),
            *(samples.titan_step(n, n, tps=1000 + 10 * rank + n) for n in range(1, 6)),
            *samples.titan_start(9.0, first_step=4),
            *(samples.titan_step(n, 6.0 + n, tps=2000 + rank) for n in range(4, 8)),
        ]
        for rank in range(4)
    ]
    in_order = [f"[rank{rank}]:{line}" for rank, queue in enumerate(queues) for line in queue]
    mixed = []
    while any(queues):
        rank = random_order.choice([index for index, queue in enumerate(queues) if queue])
        mixed.append(f"[rank{marks[rank]}]:{queues[rank].pop(0)}")
    folder = tmp_path_factory.mktemp("logs")
    for name, lines in (("one.log", in_order), ("other.log", mixed)):
        (folder / name).write_text("\n".join(lines) + "\n")
    one, other = read_log(folder / "one.log"), read_log(folder / "other.log")
    assert one == other
    assert [(step.start, step.step) for step in one.steps] == [
        *((0, n) for n in range(1, 6)),
        *((1, n) for n in range(4, 8)),
    ]


def test_two_statements_in_one_line_are_both_read(written):
    joined = samples.titan_step(1, 1.0) + "[rank1]:" + samples.titan_step(2, 2.0)
    assert step_numbers(written([joined])) == [1, 2]
    joined = samples.megatron_step(1) + samples.megatron_step(2)
    assert step_numbers(written([joined])) == [1, 2]


def test_a_statement_that_another_rank_wrote_into_is_passed_over_and_said(written):
    whole = samples.titan_step(2, 2.0)
    middle = whole.index("grad_norm")
    broken = whole[:middle] + "Downloading: 12%" + whole[middle:]
    log = written([samples.titan_step(1, 1.0), broken, samples.titan_step(3, 3.0)])
    assert step_numbers(log) == [1, 3]
    assert any(note.startswith("1 lines of steps") for note in log.notes)


@pytest.mark.parametrize(
    "line",
    [
        samples.titan_step(9, 9.0),
        samples.megatron_step(9),
        samples.deepspeed_speed(9, 9.0),
        samples.deepspeed_pipeline(9),
        samples.deepspeed_progress(9, 9.0),
        "{'loss': '7.123', 'grad_norm': '1.25', 'learning_rate': '0.0002', 'epoch': '0.45'}",
    ],
)
def test_wherever_the_last_line_is_cut_no_wrong_figure_comes_of_it(written, line):
    before = line.replace("9", "8")

    def figures_of_last(text):
        steps = written([before, text], end="").steps
        if len(steps) < 2:
            return ()
        return steps[-1].step, steps[-1].loss, steps[-1].gradient_norm, steps[-1].step_s

    whole = figures_of_last(line + "\n")
    assert whole
    for length in range(1, len(line)):
        found = figures_of_last(line[:length])
        pairs = zip(found, whole[: len(found)], strict=True)
        assert all(figure in (None, right) for figure, right in pairs)


def test_a_restarted_run_keeps_both_starts_and_the_later_loss(written):
    again = [line.replace("7.96000", "1.50000") for line in titan_run(4, 6, at_s=60.0)]
    log = written([*titan_run(1, 5), *again])
    assert log.num_starts == 2
    assert [(one.start, one.step) for one in log.steps] == [
        *((0, n) for n in range(1, 6)), *((1, n) for n in range(4, 7)),
    ]  # fmt: skip
    assert list(log.losses) == [1, 2, 3, 4, 5, 6]
    assert log.losses[4] == 1.5
    assert "training was started 2 times; again at step 4" in log.notes


def test_a_restart_right_after_the_last_step_is_told_by_the_first_line_of_training(written):
    log = written([*titan_run(1, 3), *titan_run(4, 5)])
    assert [one.start for one in log.steps] == [0, 0, 0, 1, 1]


def test_a_loss_that_is_no_number_stays_one(written):
    log = written(
        [samples.titan_step(1, 1.0, loss=math.nan), samples.titan_step(2, 2.0, loss=math.inf)]
    )
    assert math.isnan(log.steps[0].loss)
    assert math.isinf(log.steps[1].loss)


@pytest.mark.parametrize("word", [None, "n/a"])
def test_a_word_in_place_of_a_number_is_none(tmp_path, word):
    path = tmp_path / "trainer_state.json"
    entries = [samples.trainer_entry(n, n) | {"loss": word, "step": word} for n in (1, 2, 3)]
    path.write_text(json.dumps(samples.trainer_state(entries)))
    log = read_log(path)
    assert [(one.step, one.loss) for one in log.steps] == [(1, None), (2, None), (3, None)]
    assert "not numbered" in log.notes[0]


def test_bytes_that_are_no_text_do_not_matter(tmp_path):
    path = tmp_path / "train.log"
    path.write_bytes(b"\xff\xfe\x00 noise \x1b[2K\r" + samples.titan_step(1, 1.0).encode() + b"\n")
    assert step_numbers(read_log(path)) == [1]


def test_a_file_without_steps_is_refused_with_the_logs_that_are_known(written):
    with pytest.raises(InputError, match=r"no whole line of a training step.*Megatron-LM"):
        written(["hello", *samples.titan_start()])


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InputError, match="cannot read"):
        read_log(tmp_path / "missing.log")
