import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from meshfit.cluster.catalogue import accelerator
from meshfit.errors import InputError
from meshfit.submit.batch_job import BatchJob
from meshfit.submit.slurm.script import batch_script, require_options

JOB = BatchJob(
    name="meshfit tiny all launches",
    mark="0123abcd",
    command=("python", "-m", "module", "a folder"),
    folder=Path("/data/some where"),
    log=Path("jobs/1/job.log"),
    num_nodes=2,
    devices_per_node=8,
    accelerator=accelerator("H100-SXM"),
)


def options(job: BatchJob, **given: str) -> list[str]:
    lines = batch_script(job, given).splitlines()
    return [line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH")]


def test_a_job_asks_for_whole_nodes_and_becomes_its_command(tmp_path):
    assert options(JOB) == [
        '--job-name="meshfit tiny all launches"',
        "--comment=0123abcd",
        "--nodes=2",
        "--ntasks-per-node=1",
        "--output=jobs/1/job.log",
        "--exclusive",
        "--mem=0",
        "--no-requeue",
        "--gpus-per-node=8",
    ]
    text = batch_script(JOB, {})
    assert text.splitlines()[-2:] == [
        "cd '/data/some where' || exit",
        "exec python -m module 'a folder'",
    ]
    (tmp_path / "job.sbatch").write_text(text)
    subprocess.run(["bash", "-n", str(tmp_path / "job.sbatch")], check=True)


def test_ranks_of_a_processor_ask_for_no_gpus():
    core = replace(JOB.accelerator, device_type="cpu")
    assert not [word for word in options(replace(JOB, accelerator=core)) if "gpus" in word]


def test_hosts_limit_and_what_it_rests_on_are_asked_for():
    job = replace(JOB, hosts=("n2", "n10"), time_limit_s=179.0, after=("7", "9"), lane="lane-0")
    asked = options(job)
    assert {
        "--nodelist=n2,n10",
        "--time=2",
        "--dependency=afterok:7:9,singleton",
        "--kill-on-invalid-dep=yes",
        "--job-name=lane-0",
    } <= set(asked)


def test_options_of_a_person_go_before_ours():
    job = replace(JOB, time_limit_s=600)
    asked = options(job, time="1:00:00", partition="gpu", exclusive="user")
    assert {"--time=1:00:00", "--partition=gpu", "--exclusive=user"} <= set(asked)
    assert "--time=10" not in asked


def test_options_of_ours_can_be_left_out():
    asked = options(JOB, **{"gpus-per-node": "none", "gres": "none"})
    assert not [word for word in asked if word.startswith("--gpus-per-node")]
    assert "--gres=none" in asked


@pytest.mark.parametrize("name", ["nodes", "dependency", "array", "job-name"])
def test_options_that_the_sweep_rests_on_are_refused(name):
    with pytest.raises(InputError, match=f"--with {name}: the sweep sets it itself"):
        require_options({name: "1"})


def test_no_name_gets_out_of_its_directive():
    odd = 'a "b"\nreboot\\ $(reboot) 50 %'
    job = replace(JOB, name=odd, folder=Path(odd), command=("python", odd))
    before, after = (batch_script(each, {}).splitlines() for each in (JOB, job))
    assert [line for line in after if line.startswith("#SBATCH --job-name")] == [
        '#SBATCH --job-name="a _b__reboot_ $(reboot) 50 %"'
    ]
    directives = [line.startswith("#") for line in before].count(True)
    assert [line.startswith("#") for line in after[:directives]] == [True] * directives
    assert after[directives].startswith("cd 'a")


def test_a_log_has_the_name_that_it_is_given():
    assert '--output="50%% of it/job.log"' in options(replace(JOB, log=Path("50% of it/job.log")))
    with pytest.raises(InputError, match="a run folder without quotes"):
        options(replace(JOB, log=Path('a "b"/job.log')))


@pytest.mark.parametrize(
    ("name", "value"),
    [("p", "\n#SBATCH --x"), ("a b", "1"), ("", "x"), ("p", 'a" --wrap="b'), ("p", "a\\")],
)
def test_what_is_no_option_of_sbatch_is_refused(name, value):
    with pytest.raises(InputError, match="by its long name, as in partition=gpu"):
        require_options({name: value})
