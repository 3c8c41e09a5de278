import pytest

from meshfit.errors import InputError
from meshfit.funnel.space.nothing_legal import worlds_with_layouts
from meshfit.funnel.space.planning import make_plan
from meshfit.job.read import read_job
from tests.funnel.small_job import read_small_job, write_job


def refusal(job):
    with pytest.raises(InputError) as refused:
        make_plan(job)
    return str(refused.value)


def job_on(folder, cluster, more=""):
    path = write_job(folder, more)
    here = "{here: {ranks: 2, device: cpu, oversubscribe: true}}"
    path.write_text(path.read_text().replace(here, cluster))
    return read_job(path, to_run=False)


def test_a_world_no_mesh_fits_comes_with_the_nearest_that_one_fits(tmp_path):
    job = job_on(tmp_path, "7 H100-SXM")
    message = refusal(job)
    assert "no legal layout of config.json on 7 accelerators" in message
    assert "layers_fill_stages (378): 4 layers cannot fill" in message
    assert "nearest sizes with a legal layout: 6, 8" in message


def test_the_nearest_worlds_have_legal_layouts(tmp_path):
    job = job_on(tmp_path, "7 H100-SXM")
    for size in worlds_with_layouts(job):
        assert len(make_plan(job_on(tmp_path, f"1x{size} H100-SXM"))) > 0


def test_a_search_that_excludes_everything_is_named(tmp_path):
    job = read_small_job(tmp_path, "search: {tp: [3, 5], pp: 1}\n")
    assert refusal(job) == (
        "`search` (tp: [3, 5]; pp: [1]) leaves no layout on 2 accelerators: the degrees it allows "
        "must multiply to 2; widen it"
    )
