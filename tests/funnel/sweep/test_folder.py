from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshfit.funnel.sweep.folder import RunFolder


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("small llama_2.yaml", "small llama_2.yaml-01234567"),
        ("\N{GREEK SMALL LETTER PI}", "\N{GREEK SMALL LETTER PI}-01234567"),
        ("a/b", "a-b-01234567"),
        ("../../etc", "-..-etc-01234567"),
        ("..", "job-01234567"),
    ],
)
def test_a_run_folder_is_named_after_its_job(name, folder):
    assert RunFolder.of_plan(name, "0123456789").root == Path("meshfit-runs") / folder


@given(st.text())
def test_whatever_the_name_it_is_one_folder_below_meshfit_runs(name):
    root = RunFolder.of_plan(name, "0123456789").root
    assert root.parent == Path("meshfit-runs")
    assert not {"/", "\0"} & set(root.name)
    assert len(root.name.encode()) <= 255
