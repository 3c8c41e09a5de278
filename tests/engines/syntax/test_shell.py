"""Options of shell scripts, read without running them."""

import pytest

from meshfit.engines.syntax.shell import read_script
from meshfit.errors import InputError

VALUES = {"--flag": "flag", "--many": "many"}


def options(text):
    return [(one.name, one.value, one.line) for one in read_script(text, VALUES).settings]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("run --tp 8 --flag rest.py", [("--tp", "8", 1), ("--flag", True, 1)]),
        ("run --tp=8", [("--tp", "8", 1)]),
        ("run --tp 8 \\\n    --pp 2", [("--tp", "8", 1), ("--pp", "2", 2)]),
        ("run --many a b --tp 1 rest.py", [("--many", "a b", 1), ("--tp", "1", 1)]),
        ("run --tp 8 # --pp 4", [("--tp", "8", 1)]),
        ("A=(\n  --tp 8  # note\n  --pp 2\n)\nrun ${A[@]}", [("--tp", "8", 2), ("--pp", "2", 3)]),
        ('A="\n  --tp 8\n  --pp 2"\nrun $A', [("--tp", "8", 2), ("--pp", "2", 3)]),
        ("N=4\nrun --tp $N --pp ${M:-2}", [("--tp", "4", 2), ("--pp", "2", 2)]),
        ("A=2; B=3\nrun --tp $((A * B))", [("--tp", "6", 2)]),
        ("A=2\nB=$((A*4))\nrun --tp $B", [("--tp", "8", 3)]),
        ("A=(--tp 2)\nA+=(--pp 4)\nrun ${A[@]}", [("--tp", "2", 1), ("--pp", "4", 2)]),
        ("run --lr -1", [("--lr", "-1", 1)]),
        ("run --tp $UNKNOWN", [("--tp", "$UNKNOWN", 1)]),
    ],
)
def test_options_come_with_their_values_and_lines(text, expected):
    assert options(text) == expected


def test_a_value_that_only_a_shell_could_work_out_stays_as_written():
    script = read_script("N=$(nvidia-smi -L | wc -l)\nrun --tp $((N / 2))", {})
    assert script.settings[-1].value == "$((N/2))"


def test_variables_that_hold_each_other_end():
    assert options("A=$B\nB=$A\nrun --tp $A")[0][0] == "--tp"


@pytest.mark.parametrize("text", ['A="--tp 8\nrun $A', "A=(--tp 8\nrun"])
def test_what_is_never_closed_is_refused_with_its_line(text):
    with pytest.raises(InputError, match="line 1"):
        read_script(text, {})
