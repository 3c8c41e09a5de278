import pytest

from meshfit.cli.report import report
from meshfit.errors import InputError


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no run folder of a finished"),
        (b"", "is not JSON"),
        (b'{"job": {', "is not JSON"),
        (b"\xff\x00", "is not a UTF-8 text file"),
        (b"[" * 100_000, "is not JSON"),
        (b"{}", "no whole document of `meshfit fit`.*writes it anew"),
        (b"[]", "no whole document"),
        (b'{"job": null, "candidates": [1]}', "no whole document"),
    ],
)
def test_a_damaged_document_is_refused_and_leaves_no_page(tmp_path, content, message):
    if content is not None:
        (tmp_path / "fit.json").write_bytes(content)
    with pytest.raises(InputError, match=message):
        report(tmp_path)
    assert not (tmp_path / "report.html").exists()
