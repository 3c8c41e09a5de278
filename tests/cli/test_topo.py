import json

import pytest
import typer

from meshfit.cli import topo
from meshfit.errors import InputError
from tests.cli.one_command import printing, run
from tests.cluster.discover import outputs
from tests.funnel.small_job import write_job


@pytest.fixture(scope="module")
def app():
    app = typer.Typer()
    app.command()(topo.topo)
    app.callback()(lambda: None)
    return app


@pytest.fixture
def printed(app, monkeypatch):
    return printing(app, topo, monkeypatch)


def test_a_topology_is_one_json_document(app):
    document = json.loads(run(app, "topo", "2x8 H100-SXM", "--json").stdout)
    assert {"accelerators", "accelerator", "levels", "nics", "numa_nodes", "warnings"} <= set(
        document
    )
    assert {"name", "size", "kind", "bandwidth", "from"} <= set(document["levels"][0])


def test_a_topology_is_drawn_from_the_outermost_level(printed):
    lines = printed("topo", "9x8 H100-SXM").splitlines()
    assert lines[0] == "72 x H100-SXM5-80 on 9 hosts"
    assert "network: switch of 9, 50.0 GB/s (spec)" in lines[1]
    assert "link: switch of 8, 450 GB/s (spec)" in lines[2]
    assert "79.1 GiB" in lines[3]
    assert any("host7 and 1 more" in line for line in lines)


def test_this_machine_is_the_default(app):
    assert json.loads(run(app, "topo", "--json").stdout)["here"] is True


def test_an_accelerator_for_what_names_its_own_is_refused(app, tmp_path):
    job = str(write_job(tmp_path))
    for cluster in (["1x1 H100-SXM"], ["--job", job]):
        error = run(app, "topo", *cluster, "--accelerator", "A100-PCIe").exception
        assert isinstance(error, InputError)
        assert str(error).startswith("--accelerator A100-PCIe is for what tools printed; ")
        assert cluster[-1] in str(error)


def test_a_wrong_cluster_is_an_input_error(app):
    assert isinstance(run(app, "topo", "nowhere").exception, InputError)


class TestFiles:
    """Output of tools, told by what is in it."""

    PAIRS = outputs.topo_matrix(
        outputs.gpus(4),
        lambda i, j: "NV12" if i // 2 == j // 2 else "SYS",
        trailing=outputs.affinities(4),
    )

    @pytest.fixture
    def pairs(self, tmp_path):
        path = tmp_path / "anything.yaml"
        path.write_text(self.PAIRS)
        return str(path)

    def test_have_the_published_keys_whatever_their_name(self, app, pairs):
        document = json.loads(run(app, "topo", pairs, "--json").stdout)
        assert {"accelerators", "accelerator", "levels", "nics", "numa_nodes", "warnings"} <= set(
            document
        )
        assert {"name", "size", "kind", "bandwidth", "from"} <= set(document["levels"][0])
        assert (document["accelerators"], document["accelerator"], document["numa_nodes"]) == (
            4,
            None,
            2,
        )
        assert not document["here"]

    def test_become_a_cluster_yaml_that_is_read_back(self, app, pairs, tmp_path):
        path = tmp_path / "cluster.yaml"
        found = run(app, "topo", pairs, "--accelerator", "A100-PCIe", "--yaml", str(path), "--json")
        again = json.loads(run(app, "topo", str(path), "--json").stdout)
        assert [
            (level["name"], level["size"], level["bandwidth"], level["from"])
            for level in json.loads(found.stdout)["levels"]
        ] == [
            (level["name"], level["size"], level["bandwidth"], level["from"])
            for level in again["levels"]
        ]

    def test_that_lack_a_figure_make_no_cluster_yaml(self, app, pairs, tmp_path):
        error = run(app, "topo", pairs, "--yaml", str(tmp_path / "cluster.yaml")).exception
        assert "the accelerator is not known (--accelerator NAME)" in str(error)
        assert not (tmp_path / "cluster.yaml").exists()

    def test_are_drawn_with_the_ranks_of_a_layout(self, printed, pairs):
        text = printed("topo", pairs, "--accelerator", "A100-PCIe", "--layout", "tp=2,dp_shard=2")
        assert "GPU3 r3  dp_shard:1  tp:1" in text
        assert "tp: 2 groups of 2 inside link" in text

    def test_are_not_mixed_with_a_shorthand(self, app, pairs):
        assert "cannot read 8 H100-SXM" in str(run(app, "topo", pairs, "8 H100-SXM").exception)
        assert "--here" in str(run(app, "topo", pairs, "--here").exception)


def test_a_job_is_drawn_with_what_each_axis_sends(app, printed, tmp_path):
    job = str(write_job(tmp_path, "layout: {dp_shard: 2}\n"))
    [axis] = json.loads(run(app, "topo", "--job", job, "--json").stdout)["axes"]
    assert (axis["axis"], axis["degree"], axis["level"]) == ("dp_shard", 2, "host")
    assert axis["bytes"] > 0
    assert "each rank sends" in printed("topo", "--job", job)


def test_unknown_keys_of_a_layout_are_named(app):
    assert "unknown key 'xp'" in str(run(app, "topo", "8 H100-SXM", "--layout", "xp=8").exception)
