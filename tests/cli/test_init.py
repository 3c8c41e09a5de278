import pytest
import yaml

from meshfit.cli import init as command
from meshfit.cli.init import init
from meshfit.errors import InputError
from meshfit.funnel.space.planning import make_plan
from meshfit.job.read import read_job


@pytest.mark.parametrize("cores", [1, 2, 6, 8, 128])
def test_the_written_job_has_legal_layouts_whatever_the_machine(tmp_path, monkeypatch, cores):
    monkeypatch.setattr(command, "physical_cores", lambda: cores)
    monkeypatch.setattr("meshfit.cluster.here.physical_cores", lambda: cores)
    init(tmp_path / "job.yaml")
    assert len(make_plan(read_job(tmp_path / "job.yaml"))) > 0


@pytest.mark.parametrize("name", ["a b", "[x] # y", "key: value", "no", "'", "\N{SNOWMAN}"])
def test_a_model_of_any_name_is_read_back(tmp_path, name):
    (tmp_path / name).mkdir()
    (tmp_path / name / "config.json").write_text('{"model_type": "gpt2"}')
    init(tmp_path / "job.yaml", model=name)
    assert yaml.safe_load((tmp_path / "job.yaml").read_text())["model"] == name
    assert read_job(tmp_path / "job.yaml").model.model_type == "gpt2"


def test_what_cannot_be_written_is_refused(tmp_path):
    with pytest.raises(InputError, match="did you mean gpt2"):
        init(tmp_path / "job.yaml", model="gpt22")
    assert not (tmp_path / "job.yaml").exists()
    init(tmp_path / "job.yaml")
    with pytest.raises(InputError, match="already there"):
        init(tmp_path / "job.yaml")
    with pytest.raises(InputError, match="cannot write"):
        init(tmp_path / "absent" / "job.yaml")
