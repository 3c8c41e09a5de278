from pathlib import Path

from meshfit.launch.folder import start_empty


def test_a_new_folder_is_empty(tmp_path: Path) -> None:
    files = start_empty(tmp_path / "candidates" / "tp=2" / "repeat-0")
    assert list(files.root.iterdir()) == []


def test_what_earlier_attempts_left_is_kept_beside_and_never_mixed(tmp_path: Path) -> None:
    for attempt in range(3):
        files = start_empty(tmp_path / "repeat-0")
        assert list(files.root.iterdir()) == []
        files.result.write_text(str(attempt))
    kept = {path.name: (path / "result.json").read_text() for path in tmp_path.iterdir()}
    assert kept == {"repeat-0.earlier-1": "0", "repeat-0.earlier-2": "1", "repeat-0": "2"}


def test_rank_files_are_found_by_rank_in_torchruns_log_folders(tmp_path: Path) -> None:
    files = start_empty(tmp_path / "run")
    for first_rank, local_rank in ((0, 0), (8, 3)):
        logs = files.host_logs(first_rank)
        folder = logs / "none_abc123" / "attempt_0" / str(local_rank)
        folder.mkdir(parents=True)
        (folder / "stderr.log").write_text(f"rank {first_rank + local_rank}")
    found = files.rank_files("stderr.log")
    assert {rank: path.read_text() for rank, path in found.items()} == {
        0: "rank 0",
        11: "rank 11",
    }
    assert files.rank_files("error.json") == {}


def test_every_host_has_streams_of_its_own_and_the_first_ones_come_first(tmp_path: Path) -> None:
    files = start_empty(tmp_path / "run")
    for host in range(3):
        for path in files.torchrun_streams(host):
            path.write_text(str(host))
    assert [path.read_text() for path in files.torchrun_errors()] == ["0", "1", "2"]
