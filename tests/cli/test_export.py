import pytest

from meshfit.cli.export import export
from meshfit.errors import InputError
from tests.funnel.small_job import write_job


def test_a_folder_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        export(write_job(tmp_path), to="torchrun", layout="dp_shard=2", out=tmp_path / "file")


def test_names_with_brackets_are_printed_as_they_are(tmp_path, capsys):
    out = tmp_path / "[/red]"
    export(write_job(tmp_path), to="torchrun", layout="dp_shard=2", out=out)
    printed = capsys.readouterr().out.split()
    assert printed == sorted(map(str, out.iterdir()), key=printed.index)
