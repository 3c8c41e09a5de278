"""Tokens depend on the seed and the place in the global batch, never on who asks."""

import glob
import os
import sysconfig

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from meshfit.errors import InputError
from meshfit.workload import corpus
from meshfit.workload.corpus import open_corpus, text_files
from meshfit.workload.training import DataSpec


def synthetic(*, seed=0, vocab_size=300, sequence_length=8, global_batch_size=4):
    return open_corpus(
        DataSpec(seed=seed),
        vocab_size=vocab_size,
        sequence_length=sequence_length,
        global_batch_size=global_batch_size,
    )


def text(path, *, seed=0, sequence_length=8, global_batch_size=4, vocab_size=256):
    return open_corpus(
        DataSpec(source="text", path=str(path), seed=seed),
        vocab_size=vocab_size,
        sequence_length=sequence_length,
        global_batch_size=global_batch_size,
    )


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "b.txt").write_bytes(bytes(range(100, 160)))
    (tmp_path / "a.txt").write_bytes(bytes(range(1, 60)))
    return tmp_path


@pytest.fixture(params=["synthetic", "text"])
def any_corpus(request, folder):
    return synthetic() if request.param == "synthetic" else text(folder)


class TestEverySource:
    def test_slices_put_together_are_the_global_batch(self, any_corpus):
        for step in range(6):
            whole = any_corpus.batch(step, 0, 4)
            slices = [any_corpus.batch(step, first, 1) for first in range(4)]
            assert whole.shape == (4, 9)
            assert whole.dtype == np.int64
            assert np.array_equal(np.concatenate(slices), whole)

    def test_the_same_id_is_the_same_sample(self, any_corpus):
        seen = {}
        for step in range(12):
            rows = any_corpus.batch(step, 0, 4)
            for sample_id, row in zip(any_corpus.sample_ids(step).tolist(), rows, strict=True):
                assert np.array_equal(seen.setdefault(sample_id, row), row)

    def test_every_token_has_a_target(self, any_corpus):
        assert any_corpus.valid_tokens(3) == 4 * 8

    def test_a_slice_outside_the_global_batch_is_our_own_slip(self, any_corpus):
        with pytest.raises(AssertionError):
            any_corpus.batch(0, 3, 2)


class TestSynthetic:
    def test_tokens_come_from_a_generator_of_seed_and_sample_id(self):
        rows = synthetic(seed=7).batch(5, 2, 1)
        expected = np.random.default_rng((7, 5 * 4 + 2)).integers(300, size=9)
        assert np.array_equal(rows[0], expected)

    def test_another_seed_gives_other_tokens(self):
        assert not np.array_equal(synthetic().batch(0, 0, 4), synthetic(seed=1).batch(0, 0, 4))

    def test_ids_go_on_over_steps_and_tokens_stay_in_the_vocabulary(self):
        source = synthetic(vocab_size=5)
        assert source.sample_ids(3).tolist() == [12, 13, 14, 15]
        assert set(np.unique(source.batch(0, 0, 4))) <= set(range(5))

    def test_a_negative_seed_is_refused(self):
        with pytest.raises(InputError, match=r"data\.seed is -1; it takes 0 or more"):
            synthetic(seed=-1)


class TestText:
    def test_files_are_joined_by_name_with_a_zero_byte(self, folder):
        source = text(folder)
        joined = bytes(range(1, 60)) + b"\0" + bytes(range(100, 160))
        assert source.describe()["bytes"] == len(joined) == 120
        for sample_id, row in zip(source.sample_ids(0), source.batch(0, 0, 4), strict=True):
            assert bytes(row.tolist()) == joined[sample_id * 8 : sample_id * 8 + 9]

    def test_an_epoch_holds_every_window_once_in_a_seeded_order(self, folder):
        source = text(folder, global_batch_size=7)  # 119 // 8 = 14 windows
        epochs = [
            np.concatenate([source.sample_ids(step) for step in (2 * e, 2 * e + 1)])
            for e in range(2)
        ]
        for epoch in epochs:
            assert sorted(epoch) == list(range(14))
        assert not np.array_equal(*epochs)
        other = text(folder, global_batch_size=7, seed=1).sample_ids(0)
        assert not np.array_equal(epochs[0][:7], other)

    def test_a_batch_may_reach_over_epochs_and_over_the_whole_text(self, folder):
        big, small = text(folder, global_batch_size=40), text(folder, global_batch_size=1)
        one_by_one = np.concatenate([small.batch(step, 0, 1) for step in range(40)])
        assert np.array_equal(big.batch(0, 0, 40), one_by_one)

    @settings(
        suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=30
    )
    @given(length=st.integers(1, 119), seed=st.integers(0, 9), batch=st.integers(1, 9))
    def test_the_recipe_of_the_docstring_gives_the_same_tokens(self, folder, length, seed, batch):
        """What an exported script inlines; change both or neither."""
        pattern = f"{folder}/*"
        files = sorted(f for f in glob.glob(pattern, recursive=True) if os.path.isfile(f))  # noqa: PTH113, PTH207
        data = b"\0".join(open(f, "rb").read() for f in files)[: 64 * 2**20]  # noqa: PTH123, SIM115
        data = np.frombuffer(data, np.uint8)
        windows = (len(data) - 1) // length

        def window(position):
            epoch, index = divmod(position, windows)
            start = length * np.random.default_rng((seed, epoch)).permutation(windows)[index]
            return data[start : start + length + 1]

        source = text(pattern, seed=seed, sequence_length=length, global_batch_size=batch)
        for step in range(3):
            expected = [window(step * batch + place) for place in range(batch)]
            assert np.array_equal(source.batch(step, 0, batch), expected)

    def test_two_machines_with_the_same_text_can_see_that_they_have_it(self, folder):
        first, again = text(folder).describe(), text(folder / "*.txt").describe()
        assert first["sha256"] == again["sha256"]
        assert (first["files"], first["sequences_per_epoch"]) == (2, 14)
        (folder / "a.txt").write_bytes(b"?" * 59)
        assert text(folder).describe()["sha256"] != first["sha256"]

    def test_text_beyond_the_limit_is_left_out(self, folder, monkeypatch):
        whole = text(folder).text.tobytes()
        for limit in (20, 59, 60, 61, 120, 121):
            monkeypatch.setattr(corpus, "MAX_TEXT_BYTES", limit)
            assert text(folder).text.tobytes() == whole[:limit]


class TestPaths:
    def test_a_file_a_folder_and_a_glob_are_paths(self, folder):
        (folder / "deep").mkdir()
        (folder / "deep" / "c.py").write_text("c")
        names = [os.path.relpath(file, folder) for file in text_files(str(folder))]
        assert names == ["a.txt", "b.txt", "deep/c.py"]
        assert text_files(str(folder / "*.txt")) == [f"{folder}/a.txt", f"{folder}/b.txt"]
        assert text_files(str(folder / "b.txt")) == [f"{folder}/b.txt"]

    def test_a_name_that_looks_like_a_glob_means_itself_when_it_exists(self, tmp_path):
        (tmp_path / "data[1]").mkdir()
        (tmp_path / "data[1]" / "x*.txt").write_text("x")
        (tmp_path / "data[1]" / "xy.txt").write_text("y")
        assert text_files(str(tmp_path / "data[1]" / "x*.txt")) == [f"{tmp_path}/data[1]/x*.txt"]
        assert len(text_files(str(tmp_path / "data[1]"))) == 2

    def test_stdlib_home_and_environment_variables_are_expanded(self, folder, monkeypatch):
        assert f"{sysconfig.get_path('stdlib')}/ast.py" in text_files("${stdlib}/*.py")
        monkeypatch.setenv("HOME", str(folder))
        monkeypatch.setenv("CORPUS", str(folder))
        assert text_files("~/a.txt") == text_files("$CORPUS/a.txt") == [f"{folder}/a.txt"]

    @pytest.mark.parametrize("path", ["missing.txt", "no/*.py", "$NOT_SET/x", "a\0b", "x" * 5000])
    def test_a_path_without_files_is_refused_with_what_would_work(self, path):
        with pytest.raises(InputError, match=r"names no file .* a file, a folder or a glob"):
            text(path)

    def test_a_path_of_a_whole_disk_is_refused(self, folder, monkeypatch):
        monkeypatch.setattr(corpus, "MAX_FILES", 1)
        with pytest.raises(InputError, match="names more than 1 files"):
            text_files(str(folder))

    def test_an_unreadable_file_is_named(self, folder, monkeypatch):
        def refuse(*_args):
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr("builtins.open", refuse)
        with pytest.raises(InputError, match=r"a\.txt cannot be read \(Permission denied\)"):
            text(folder)

    def test_text_needs_a_path(self):
        with pytest.raises(InputError, match=r"data\.path is missing"):
            open_corpus(
                DataSpec(source="text"), vocab_size=256, sequence_length=8, global_batch_size=1
            )

    def test_text_needs_a_vocabulary_of_all_bytes(self, folder):
        with pytest.raises(InputError, match=r"vocab_size 256 or more; the model has 255"):
            text(folder, vocab_size=255)

    def test_text_shorter_than_one_sequence_is_refused_with_both_lengths(self, folder):
        with pytest.raises(InputError, match=r"120 bytes in 2 files; one sequence of 120 .* 121"):
            text(folder, sequence_length=120)
        assert text(folder, sequence_length=119).num_windows == 1
