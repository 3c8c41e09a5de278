import io

from rich.console import Console

from meshfit.report.predicted.explain import explain_view


def show(document):
    console = Console(file=io.StringIO(), width=160)
    console.print(explain_view(document))
    return console.file.getvalue()


ROW = {
    "axis": "tp",
    "degree": 4,
    "divides": [
        {"dimension": "query heads", "whole": 32, "part": 8.0, "copies": 1},
        {"dimension": "key/value heads", "whole": 2, "part": 1, "copies": 2},
    ],
    "replicated": {"parameters": 2**20, "gradients": 0, "optimizer": 0},
    "collectives": [
        {
            "collective": "all_gather",
            "times": 2080,
            "bytes": 3 * 2**30,
            "exposed": 0.25,
            "parts": [
                {
                    "what": "hidden states",
                    "times": 2080,
                    "bytes": 3 * 2**30,
                    "formula": "2,080 x 3/4 x 512 tokens x 1,024 x 4 B",
                }
            ],
        },
        {
            "collective": "reduce_scatter",
            "times": 8,
            "bytes": 2**30,
            "exposed": 0.0,
            "parts": [],
        },
    ],
    "level": "link",
    "leaves_host": False,
}


def test_a_row_says_what_is_divided_replicated_and_sent():
    text = show({"label": "tp=4", "rows": [ROW], "notes": [], "absent": {}})
    for part in (
        "tp=4",
        "query heads 32 \N{RIGHTWARDS ARROW} 8",
        "key/value heads 2 \N{RIGHTWARDS ARROW} 1 (on 2 ranks)",
        "parameters 1.00 MiB",
        "2,080 x all_gather",
        "3.00 GiB",
        "250 ms",
        "hidden",
        "link",
        "tp all_gather: 2,080 x 3/4 x 512 tokens x 1,024 x 4 B = 3.00 GiB (hidden states)",
    ):
        assert part in text
    assert "leaves the host" not in text


def test_what_is_not_known_is_said_with_its_reason():
    row = ROW | {"replicated": None, "collectives": None, "leaves_host": True}
    absent = {"replicated": "no model of it", "collectives": "no model of it"}
    text = show({"label": "tp=4", "rows": [row], "notes": ["a stand-in"], "absent": absent})
    assert "not known: replicated, collectives: no model of it" in text
    assert "note: a stand-in" in text
    assert "leaves the host" in text


def test_one_rank_has_nothing_to_explain():
    document = {"label": "single", "rows": [], "notes": [], "absent": {}}
    assert show(document).strip() == "single: one rank, nothing is divided."
