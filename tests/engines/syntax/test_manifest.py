"""Commands in manifests, as the scripts that they stand for."""

import pytest

from meshfit.engines.syntax.shell import read_script

POD = """\
apiVersion: v1
kind: Pod
spec:
  containers:
  - name: trains
    image: somewhere/trainer.py:1
"""


def options(text):
    return [(one.name, one.value, one.line) for one in read_script(text, {}).settings]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            POD + '    command: ["python", "a.py"]\n    args: ["--tp", "8", "--pp=2"]\n',
            [("--tp", "8", 8), ("--pp", "2", 8)],
        ),
        (
            POD + '    command:\n    - a.py\n    - --tp\n    - "8"\n    - --pp\n    - 2\n',
            [("--tp", "8", 9), ("--pp", "2", 11)],
        ),
        (
            POD
            + '    command: ["/bin/sh", "-c"]\n    args:\n    - |\n      TP=8\n      a.py --tp $TP\n',
            [("--tp", "8", 11)],
        ),
        (
            POD + "    args:\n    - |\n      a.py \\\n        --tp 8\n    command: [bash, -c]\n",
            [("--tp", "8", 10)],
        ),
        (POD + "---\n" + POD.replace("1\n", "1 --tp 4\n"), [("--tp", "4", 13)]),
        ("services:\n  x:\n    image: y\n    command: a.py --tp 8\n", [("--tp", "8", 4)]),
        (
            "services:\n  x:\n    image: y\n    entrypoint: [a.py]\n    command: [--tp, 8]\n",
            [("--tp", "8", 5)],
        ),
    ],
    ids=["lists", "items", "script", "arguments first", "two documents", "compose", "entrypoint"],
)
def test_options_are_those_of_the_container_with_their_lines(text, expected):
    assert options(text) == expected


@pytest.mark.parametrize("text", [POD + "    args: [", POD + "  x: &a [*a]\n", "services: 3\n"])
def test_what_is_no_manifest_is_read_as_a_script(text):
    assert options(text) == []
