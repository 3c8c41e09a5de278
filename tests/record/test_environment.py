import json
import os
import subprocess
from pathlib import Path

import pytest

import meshfit
from meshfit.record import environment
from meshfit.record.environment import (
    Unobtainable,
    code_revision,
    gather,
    host_environment,
    package_versions,
    relevant_variables,
    without_home,
)


def test_the_document_is_json_and_names_the_host_and_the_code():
    found = host_environment()
    assert json.loads(json.dumps(found)) == found
    assert found["meshfit"] == meshfit.__version__
    assert found["cores_usable"] == len(os.sched_getaffinity(0))
    assert found["memory_bytes"] > 0


def test_more_ranks_than_usable_cores_are_oversubscribed():
    cores = len(os.sched_getaffinity(0))
    assert host_environment(ranks=cores)["oversubscribed"] is False
    assert host_environment(ranks=cores + 1)["oversubscribed"] is True
    assert "oversubscribed" not in host_environment()


def test_a_fact_that_cannot_be_had_is_absent_with_its_reason():
    def clock() -> int:
        raise Unobtainable("no clock here")

    assert gather({"model": lambda: "X", "clock": clock}) == {
        "model": "X",
        "absent": {"clock": "no clock here"},
    }
    assert "absent" not in gather({"model": lambda: "X"})


def test_only_variables_that_change_speed_memory_or_results_are_kept():
    kept = relevant_variables(
        {
            "NCCL_DEBUG": "INFO",
            "OMP_NUM_THREADS": "1",
            "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
            "CUDA_VISIBLE_DEVICES": "0,1",
            "HOME": "/home/ada",
            "NVIDIA_API_KEY": "secret",
            "TORCH_HUB_TOKEN": "secret",
        }
    )
    assert list(kept) == [
        "CUDA_VISIBLE_DEVICES", "NCCL_DEBUG", "OMP_NUM_THREADS", "PYTORCH_CUDA_ALLOC_CONF",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/home/ada/cache", "~/cache"),
        ("a:/home/ada:/opt", "a:~:/opt"),
        ("/home/ada", "~"),
        ("/home/adalbert/cache", "/home/adalbert/cache"),
    ],
)
def test_the_home_folder_is_not_shown(text, shown):
    assert without_home(text, home="/home/ada") == shown


def test_the_home_folder_is_in_no_value(monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(Path.home() / "torch"))
    assert host_environment()["variables"]["TORCH_HOME"] == "~/torch"


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """meshfit as if run from a fresh git checkout with one commit."""
    source = tmp_path / "src" / "meshfit"
    source.mkdir(parents=True)
    module = source / "__init__.py"
    module.write_text("")
    (tmp_path / "README.md").write_text("")

    def git(*arguments: str) -> str:
        identity = ["-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false"]
        done = subprocess.run(
            ["git", "-C", str(tmp_path), *identity, *arguments],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stdout.strip()

    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "first")
    monkeypatch.setattr(environment.meshfit, "__file__", str(module))
    return tmp_path, git


def test_the_revision_is_the_commit_of_the_checkout(checkout):
    _, git = checkout
    assert code_revision() == git("rev-parse", "--short=12", "HEAD")


def test_a_checkout_whose_code_was_changed_says_so_but_other_files_do_not_count(checkout):
    root, git = checkout
    (root / "README.md").write_text("changed")
    assert code_revision() == git("rev-parse", "--short=12", "HEAD")
    (root / "src/meshfit/__init__.py").write_text("changed = True\n")
    assert code_revision().endswith("+changes")


def test_meshfit_installed_inside_someone_elses_checkout_has_no_revision(checkout, monkeypatch):
    root, _ = checkout
    installed = root / ".venv" / "meshfit"
    installed.mkdir(parents=True)
    (installed / "__init__.py").write_text("")
    monkeypatch.setattr(environment.meshfit, "__file__", str(installed / "__init__.py"))
    with pytest.raises(Unobtainable, match="not run from a git checkout"):
        code_revision()


def test_without_git_there_is_a_reason_instead_of_a_revision(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert host_environment()["absent"]["revision"] == "no git on this machine"


def test_packages_that_are_not_installed_have_no_version():
    assert list(package_versions(["numpy", "no-such-package"])) == ["numpy"]
