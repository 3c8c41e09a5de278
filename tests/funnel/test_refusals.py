"""What ``fit`` and ``run`` refuse before anything is started."""

import io
import socket

import pytest
from rich.console import Console

from meshfit.errors import InputError
from meshfit.funnel.sweep.fit import fit, run_one
from meshfit.job.read import read_job
from tests.funnel.small_job import read_small_job, write_job

OLMO = (
    '{"model_type": "olmo2", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,'
    ' "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 256}'
)


def refusal(job, tmp_path, stage=fit):
    out = tmp_path / "out"
    with pytest.raises(InputError) as refused:
        stage(job, out=out, console=Console(file=io.StringIO()))
    assert not (out / "plan.json").exists()
    return str(refused.value)


def test_a_family_that_the_runner_does_not_know(tmp_path):
    path = write_job(tmp_path)
    (tmp_path / "config.json").write_text(OLMO)
    assert "'olmo2', which this version does not run; it runs llama" in refusal(
        read_job(path), tmp_path
    )


def test_a_cluster_that_is_elsewhere(tmp_path):
    path = write_job(tmp_path)
    text = path.read_text().replace(
        "{here: {ranks: 2, device: cpu, oversubscribe: true}}", "1x8 H100-SXM"
    )
    path.write_text(text)
    assert "set `cluster: here`" in refusal(read_job(path), tmp_path)


def test_a_port_in_use(tmp_path):
    with socket.socket() as taken:
        taken.bind(("localhost", 0))
        taken.listen()
        port = taken.getsockname()[1]
        job = read_small_job(tmp_path, f"run: {{port: {port}}}\n")
        message = refusal(job, tmp_path)
    assert message.startswith(f"run.port {port} cannot be used")
    assert "leave run.port out" in message


def test_a_data_path_that_is_not_there(tmp_path):
    path = write_job(tmp_path)
    path.write_text(path.read_text().replace("${stdlib}/a*.py", "absent/*.txt"))
    assert "names no file" in refusal(read_job(path), tmp_path)


def test_a_baseline_that_breaks_rules(tmp_path):
    job = read_small_job(tmp_path, "baseline: {tp: 3}\n")
    assert "baseline tp=3 is not legal" in refusal(job, tmp_path)


def test_a_run_without_a_layout_or_with_an_illegal_one(tmp_path):
    assert "no layout to run" in refusal(read_small_job(tmp_path), tmp_path, run_one)
    illegal = read_job(write_job(tmp_path), layout="tp=3")
    assert "layout tp=3 is not legal" in refusal(illegal, tmp_path, run_one)


def test_parity_with_one_process_that_cannot_hold_the_model(tmp_path, monkeypatch):
    from meshfit.funnel.sweep import proof

    monkeypatch.setattr(proof, "SHARE_OF_MEMORY", 1e-9)
    job = read_small_job(tmp_path, "run: {parity: single_process}\n")
    assert "`auto` or `reduced` would prove parity on a cut model" in refusal(job, tmp_path)
    automatic = read_small_job(tmp_path)
    assert "one process cannot hold config.json even cut to" in refusal(automatic, tmp_path)


@pytest.mark.parametrize("name", ["file", "file/below"])
def test_a_run_folder_that_cannot_be_made(tmp_path, name):
    (tmp_path / "file").write_text("")
    job = read_small_job(tmp_path)
    with pytest.raises(InputError, match=r"cannot be used.*choose another one"):
        fit(job, out=tmp_path / name, console=Console(file=io.StringIO()))
