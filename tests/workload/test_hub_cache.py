"""A repository is found where huggingface_hub keeps it; nothing else is touched."""

import os

import pytest

from meshfit.workload.hub_cache import cached_config, hub_cache

VARIABLES = ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME")


@pytest.fixture
def environment(monkeypatch):
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    return monkeypatch


def snapshot(cache, repo, revision, *, age_s=0):
    folder = cache / f"models--{repo.replace('/', '--')}" / "snapshots" / revision
    folder.mkdir(parents=True)
    config = folder / "config.json"
    config.write_text("{}")
    os.utime(config, (1e9 - age_s, 1e9 - age_s))
    return config


def test_the_variables_of_huggingface_hub_decide_the_folder(environment, tmp_path):
    environment.setenv("HOME", str(tmp_path))
    assert hub_cache() == tmp_path / ".cache" / "huggingface" / "hub"
    environment.setenv("XDG_CACHE_HOME", "/xdg")
    assert str(hub_cache()) == "/xdg/huggingface/hub"
    environment.setenv("HF_HOME", "/home")
    assert str(hub_cache()) == "/home/hub"
    environment.setenv("HF_HUB_CACHE", "/cache")
    assert str(hub_cache()) == "/cache"


def test_the_revision_of_main_comes_before_a_newer_snapshot(environment, tmp_path):
    environment.setenv("HF_HUB_CACHE", str(tmp_path))
    main = snapshot(tmp_path, "org/name", "aaa", age_s=100)
    newest = snapshot(tmp_path, "org/name", "bbb")
    assert cached_config("org/name") == newest
    references = tmp_path / "models--org--name" / "refs"
    references.mkdir()
    (references / "main").write_text("aaa")
    assert cached_config("org/name") == main


def test_a_snapshot_without_a_config_is_not_there(environment, tmp_path):
    environment.setenv("HF_HUB_CACHE", str(tmp_path))
    snapshot(tmp_path, "org/name", "aaa").unlink()
    assert cached_config("org/name") is None


@pytest.mark.parametrize("repo", ["", "../secrets", "a/b/c", "org/na*me", "a b", "x" * 5000])
def test_what_is_no_repository_id_or_not_cached_is_none(environment, tmp_path, repo):
    environment.setenv("HF_HUB_CACHE", str(tmp_path))
    assert cached_config(repo) is None
