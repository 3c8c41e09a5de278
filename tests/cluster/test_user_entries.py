"""A person's own catalogue goes before the shipped one."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from meshfit.cli.main import app
from meshfit.cluster.catalogue import (
    accelerator,
    accelerator_entry,
    accelerators,
    node_type,
    node_types,
)
from meshfit.cluster.files import read_topology
from meshfit.errors import InputError
from meshfit.workload.models import read_model

CONFIG = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 256,
}

OWN = """
schema_version: 1
accelerators:
  H100-SXM:
    memory: 78 GiB
    source: our nvidia-smi
  Chip9:
    aliases: [C9]
    memory: 48 GiB
    memory_bandwidth: 1.2 TB/s
    peak_flops_per_s: {bf16: 400e12}
    link_bandwidth: 100 GB/s
node_types:
  Box9:
    accelerators: [Chip9]
    gpus_per_host: 4
    link_kind: mesh
    link_domain: 4
    nic_bandwidth_per_accelerator: 25 GB/s
models:
  tiny: {config: tiny.json, source: ours}
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    def write(text=OWN):
        path = tmp_path / "catalogue.yaml"
        path.write_text(text)
        (tmp_path / "tiny.json").write_text(json.dumps(CONFIG))
        monkeypatch.setenv("MESHFIT_CATALOGUE", str(path))
        return path

    return write


def test_an_entry_named_like_a_shipped_one_changes_what_it_gives(own):
    shipped = accelerator("H100-SXM5-80")
    own()
    entry = accelerator_entry("H100-80G")
    assert entry.name == "H100-SXM5-80"
    assert entry.spec.memory_bytes == 78 * 2**30
    assert (entry.memory_from, entry.spec.source) == ("typed", "our nvidia-smi")
    assert entry.spec.peak_flops_per_s == shipped.peak_flops_per_s
    assert [one.name for one in accelerators()].count("H100-SXM5-80") == 1


def test_an_accelerator_and_a_node_of_ones_own_make_a_cluster(own):
    own()
    assert accelerator("c9").memory_bytes_per_s == 1.2e12
    assert node_type("box9").accelerators == ("Chip9",)
    topology = read_topology("2x4 C9", Path())
    assert [(level.kind, level.size) for level in topology.levels] == [("mesh", 4), ("switch", 2)]
    assert topology.levels[0].bandwidth_bytes_per_s == 100e9
    assert topology.levels[1].bandwidth_bytes_per_s == 25e9


def test_a_model_of_ones_own_has_a_name(own):
    own()
    assert read_model("Tiny").num_hidden_layers == 2


def test_a_model_may_be_written_out(own):
    own("schema_version: 1\nmodels:\n  llama-3.1-8b: {config: " + json.dumps(CONFIG) + "}\n")
    assert read_model("llama-3.1-8b").hidden_size == 64


def test_the_home_folder_is_looked_in_where_nothing_is_named(tmp_path, monkeypatch):
    monkeypatch.delenv("MESHFIT_CATALOGUE", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "meshfit").mkdir()
    (tmp_path / "meshfit" / "catalogue.yaml").write_text(OWN)
    assert accelerator("H100").memory_bytes == 78 * 2**30


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("schema_version: 1\naccelerator: {}\n", "unknown key 'accelerator'; did you mean"),
        (
            "schema_version: 1\naccelerators: {H100: {memry: 1 GiB}}\n",
            "unknown key 'accelerators.H100.memry'; did you mean 'memory'",
        ),
        (
            "schema_version: 1\naccelerators: {NewOne: {memory: 1 GiB}}\n",
            "accelerators.NewOne is no shipped entry, so it needs memory_bandwidth, peak_flops",
        ),
        (
            "schema_version: 1\nnode_types: {NewBox: {nics: 8}}\n",
            "node_types.NewBox is no shipped entry, so it needs accelerators, gpus_per_host",
        ),
        (
            "schema_version: 1\naccelerators: {H100: {memory: 0 GiB}}\n",
            "accelerators.H100.memory '0 GiB' must be greater than 0",
        ),
        ("schema_version: 2\n", "schema_version"),
    ],
)
def test_a_mistake_is_one_message(own, text, message):
    own(text)
    with pytest.raises(InputError, match=message):
        (accelerators(), node_types())


def test_a_named_file_that_is_not_there_is_said(monkeypatch, tmp_path):
    monkeypatch.setenv("MESHFIT_CATALOGUE", str(tmp_path / "absent.yaml"))
    with pytest.raises(
        InputError, match=r"MESHFIT_CATALOGUE names .*absent\.yaml, which is no file"
    ):
        accelerator("H100")


@pytest.mark.parametrize("kind", ["accelerators", "nodes", "models"])
def test_the_catalogue_shows_where_its_figures_come_from(kind, own):
    own()
    listed = json.loads(CliRunner().invoke(app, ["catalogue", kind, "--json"]).stdout)
    assert all(entry["source"] for entry in listed)
