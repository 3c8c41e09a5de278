"""Options of shell scripts, read without running them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshfit.engines.syntax.shell import read_script
from meshfit.errors import InputError

VALUES = {"--flag": "flag", "--many": "many", "--three": "3"}


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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("srun --nodes 4 torchrun --nnodes 4 a.py --tp 8", [("--tp", "8", 1)]),
        (
            "nvidia-smi --query-gpu=name\npython a.py --tp 8\npip install --upgrade b",
            [("--tp", "8", 2)],
        ),
        ("A=(--old 1)\nB=(--tp 8)\npython a.py ${B[@]}", [("--tp", "8", 2)]),
        ("cat <<EOF > x\nit's --tp 4\nEOF\npython a.py --tp 8", [("--tp", "8", 4)]),
        ("echo --tp 4\npython a.py --tp 8 2>&1 | tee --append log", [("--tp", "8", 2)]),
        (
            'C="a.py --tp 8"\nsrun bash -c "torchrun $C --pp 2"',
            [("--tp", "8", 1), ("--pp", "2", 2)],
        ),
        ("python a.py --tp 8 > log &\nwait", [("--tp", "8", 1)]),
        ("TP=8\npython a.py --tp $TP\nTP=4", [("--tp", "8", 2)]),
        (
            "TP=${TP:-8}; PP=${PP:-${P:-2}}\na.py --tp $TP --pp $PP",
            [("--tp", "8", 2), ("--pp", "2", 2)],
        ),
        ("python a.py --tp $(( (1 + 1) * 4 ))", [("--tp", "8", 1)]),
        ("declare -i TP=8\nX=1 python a.py --tp=$TP", [("--tp", "8", 2)]),
        ('F="([0]*3 + [1]*5)"\npython a.py --freq "$F"', [("--freq", "([0]*3 + [1]*5)", 2)]),
        (
            "srun /bin/bash -exc 'export X=1; cd /src && torchrun a.py --tp 8'",
            [("--tp", "8", 1)],
        ),
        ("bash -c '\nTP=8\na.py --tp $TP'", [("--tp", "8", 3)]),
        ("sbatch <<EOF\n#!/bin/bash\npython a.py --tp 8\nEOF", [("--tp", "8", 3)]),
        ("cat > job.sh <<'EOF'\nTP=8\npython a.py --tp $TP\nEOF", [("--tp", "8", 3)]),
        ("python a.py --three 1 2 3 rest --tp 8", [("--three", "1 2 3", 1), ("--tp", "8", 1)]),
        (
            "#SBATCH --nodes=4\n#SBATCH --gres=gpu:h100:8\na.py --tp $SLURM_NNODES --pp $SLURM_GPUS_ON_NODE",
            [("--tp", "4", 3), ("--pp", "8", 3)],
        ),
        (
            "#SBATCH -N 4\n#SBATCH --ntasks-per-node 8\na.py --tp $SLURM_NTASKS",
            [("--tp", "32", 3)],
        ),
        (
            "# host 0\na.py --tp 8 --node-rank 0\n# host 1\na.py --tp 8 --node-rank 1",
            [("--tp", "8", 2), ("--node-rank", "0", 2)],
        ),
        ("\ufeffpython a.py \\\r\n  --tp 8\r\n", [("--tp", "8", 2)]),
    ],
)
def test_options_are_those_of_the_program_as_a_shell_would_run_it(text, expected):
    assert options(text) == expected


@pytest.mark.parametrize(
    "condition",
    [
        "if [ $1 = a ]; then\n TP=8\nelse\n TP=4\nfi",
        "case $1 in a) TP=8;; *) TP=4;; esac",
        "TP=4\n[ $1 = a ] && TP=8",
        "for TP in 4 8; do\n",
    ],
)
def test_a_number_that_hangs_on_a_condition_is_none(condition):
    [setting] = read_script(f"{condition}\npython a.py --tp $TP", {}).settings
    with pytest.raises(InputError, match="write the number itself"):
        setting.whole()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("if a; then\n A+=(--tp 8)\nfi\npython a.py $A", "line 2: A has options that hang"),
        ("python a.py --tp 8\npython b.py --tp 4", "lines 1, 2"),
    ],
)
def test_options_of_which_several_could_be_meant_are_refused(text, said):
    with pytest.raises(InputError, match=said):
        read_script(text, {})


def test_of_several_programs_the_one_with_most_marks_trains():
    text = "python prepare.py --tp 1\npython train.py --tp 8 --pp 2\npython convert.py --pp 4"
    script = read_script(text, VALUES, marks=("--tp", "--pp"))
    assert [one.value for one in script.settings] == ["8", "2"]


def test_a_reference_to_what_the_script_does_not_set_is_reported():
    script = read_script("python a.py --tp 8 $MORE", VALUES)
    assert [(one.name, one.line) for one in script.left_open] == [("$MORE", 1)]


@pytest.mark.parametrize("sum_", ["9" * 4000 + "*" + "9" * 4000, "8/0", "8**99999999", "1+"])
def test_a_sum_that_is_none_stays_as_written(sum_):
    assert options(f"run --tp $(({sum_}))") == [("--tp", f"$(({sum_}))", 1)]


def test_a_value_that_only_a_shell_could_work_out_stays_as_written():
    script = read_script("N=$(nvidia-smi -L | wc -l)\nrun --tp $((N / 2))", {})
    assert "$" in script.settings[-1].value
    with pytest.raises(InputError, match=r"line 2: --tp .* write the number itself"):
        script.settings[-1].whole()


def test_variables_that_hold_each_other_end():
    assert options("A=$B\nB=$A\nrun --tp $A")[0][0] == "--tp"


@given(
    st.lists(
        st.sampled_from(
            ["a", "A=", "A+=(", "(", ")", "((", "))", "$(", "${A", "}", "$A", "'", '"', "\\", "\n", " ",
             "<<E\n", "E\n", "<", ">", "2>&1", "&&", "|", ";", "#", "if", "fi", "do", "done", "--x", "=",
             "[", "]", "export ", "a.py ", "for ", "bash -c ", "sh -xc ", "apiVersion: 1\n", "\r\n", "$((", "8", "*"]
        ),
        max_size=30,
    ).map("".join)
)  # fmt: skip
def test_any_text_is_read_or_refused(text):
    try:
        read_script(text, {})
    except InputError as refusal:
        assert str(refusal).startswith(("line ", "several "))


@pytest.mark.parametrize("text", ['A="--tp 8\nrun $A', "A=(--tp 8\nrun"])
def test_what_is_never_closed_is_refused_with_its_line(text):
    with pytest.raises(InputError, match="line 1"):
        read_script(text, {})
