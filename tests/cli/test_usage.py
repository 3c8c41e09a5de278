"""A command line that cannot be read is one line on stderr, with what would work."""

import json
import math

import pytest

from meshfit.cli.serve_simulate import at_rate
from meshfit.errors import InputError
from meshfit.serve.asked.traffic import LengthSpec, TrafficSpec
from meshfit.workload.parts import PARTS


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("model --sequence-lenth 4", "meshfit model has no option --sequence-lenth; did you mean --sequence-length?"),
        ("model --foo", "meshfit model has no option --foo; `meshfit model --help` lists those that it has"),
        ("plam", "no such command 'plam'; did you mean 'plan'?"),
        ("serve bogus", "no such command 'bogus'; `meshfit serve --help` shows what it takes"),
        ("plan", "JOB is missing; `meshfit plan --help` shows what it takes"),
        ("train job", "--checkpoint-every is missing; `meshfit train --help` shows what it takes"),
        ("plan job --top", "option '--top' requires an argument"),
        ("plan job --top many", "--top: 'many' is not allowed; expected an integer"),
        ("plan job more", "got unexpected extra argument(s) (more); `meshfit plan --help` shows what it takes"),
    ],
)  # fmt: skip
def test_a_wrong_command_line_is_one_line_with_the_nearest_that_works(said, arguments, message):
    assert said(*arguments.split()) == (2, "", f"error: {message}\n")


@pytest.mark.parametrize(
    ("arguments", "least"),
    [
        ("plan job --top 0", 1),
        ("plan job --dry-run -1", 0),
        ("model gpt2 --sequence-length -5", 1),
        ("train job --checkpoint-every 0", 1),
        ("train job --checkpoint-every 5 --restarts -1", 0),
        ("probe --ranks 0", 1),
        ("lab up --ranks-per-host 0", 1),
        ("dryrun job --rank -1", 0),
        ("serve simulate job --requests 0", 1),
    ],
)
def test_numbers_out_of_range_are_refused_in_the_words_of_files(said, arguments, least):
    code, _, message = said(*arguments.split())
    *_, option, value = arguments.split()
    expected = f"{option}: '{value}' is not allowed; expected greater than or equal to {least}"
    assert (code, message) == (2, f"error: {expected}\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("probe --ranks 2 --budget 0s", "--budget '0s' must be greater than 0"),
        ("probe --ranks 2 --largest 0", "--largest '0' must be greater than 0"),
        ("probe --ranks 2 --storage no/such", "--storage no/such is no folder that is there"),
        ("plan job --calibration .", "--calibration . is a folder; give the file in it"),
        (
            "catalogue nodes qqq",
            "unknown node type 'qqq'; `meshfit catalogue nodes` lists the known ones",
        ),
    ],
)
def test_values_that_would_measure_or_read_nothing_are_refused(said, arguments, message):
    assert said(*arguments.split()) == (2, "", f"error: {message}\n")


def test_a_rate_is_a_number_greater_than_0():
    lengths = LengthSpec(median_tokens=8, p99_tokens=8)
    traffic = TrafficSpec(rate_per_s=1.0, prompt=lengths, output=lengths)
    for rate in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(InputError, match=r"--rate .* must be a number greater than 0"):
            at_rate(traffic, rate)


def test_a_choice_names_all_that_there_are(said):
    _, _, message = said("catalogue", "nodse")
    assert (
        message
        == "error: KIND: 'nodse' is not one of 'models', 'accelerators', 'nodes', 'engines'\n"
    )


def test_without_a_command_help_is_shown_and_nothing_is_an_error(said):
    code, out, message = said()
    assert (code, message) == (2, "")
    assert "Usage" in out


@pytest.mark.parametrize("arguments", ["plan --json", "plan no/such/job --json", "--foo --json"])
def test_with_json_an_error_is_one_document_on_stdout_too(said, arguments):
    code, out, message = said(*arguments.split())
    error = json.loads(out)["error"]
    assert (code, error["kind"]) == (2, "input")
    assert message == f"error: {error['message']}\n"


def test_a_document_that_was_printed_is_the_only_one(said, monkeypatch):
    from meshfit.cli import model

    built = {"class": "X", "version": "1", "total": 1, "by_part": dict.fromkeys(PARTS, 0)}
    monkeypatch.setattr(model, "built_counts", lambda config: built)
    code, out, message = said("model", "gpt2", "--verify", "--json")
    assert (code, json.loads(out)["verified"]["agrees"]) == (3, False)
    assert "counts differ from transformers" in message
