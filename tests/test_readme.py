"""The README's figures are those of the pages that they come from, its links lead somewhere."""

import re
from pathlib import Path

import pytest

from tools.pages import DOCS

ROOT = DOCS.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]

FIGURES = [
    (
        "accuracy",
        r"### Memory: .*?\n\| all \| (\d+) \| \d+ \| ([\d.]+)%",
        "| memory of a rank | {1} % off in the median | {0} published",
    ),
    (
        "accuracy",
        r"### Step time: .*?\n\| all \| (\d+) \| \d+ \| ([\d.]+)%",
        "| step time | {1} % off in the median | {0} published",
    ),
    (
        "accuracy",
        r"\| narrow: meshfit \| (\d+) \| \d+ \| ([\d.]+)%.*?\| wide: meshfit \| (\d+) \| \d+ \| ([\d.]+)%",
        "{1} % right in one campaign, {3} % in one source | {0} and {2} pairs",
    ),
    (
        "accuracy",
        r"### What fits.*?\| meshfit \| (\d+ of \d+) \| \d+ \| (\d+ of \d+) ",
        "{0} out of memory caught, {1} that ran kept",
    ),
    (
        "collectives",
        r"\| intra_node \| (\d+) \| \d+ \| ([\d.]+)%.*?\| multi_node \| (\d+) \| \d+ \| ([\d.]+)%",
        "{1} % off in a node, {3} % over several | {0} and {2} measured points",
    ),
    (
        "serving",
        r"([\d,]+) aggregated rows are modelled.*?\| time per token \| ([\d.]+) %.*?\| time to first token \| ([\d.]+) %",
        "{1} % off in time per token, {2} % in time to first token | vLLM, SGLang and TensorRT-LLM, {0} ",
    ),
    (
        "combinations",
        r"so what is run is one\nfor each .*?: (\d+) layouts",
        "| {0} layouts on eight",
    ),
    (
        "exhaustive",
        r"Shortlist of `fit`: held the fastest layout in (\d+ of \d+) sweeps",
        "held the fastest of all layouts in {0} sweeps",
    ),
]


@pytest.mark.parametrize(("page", "pattern", "words"), FIGURES, ids=lambda value: value[:12])
def test_a_figure_is_that_of_its_page(page, pattern, words):
    found = re.search(pattern, (DOCS / f"{page}.md").read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    assert words.format(*found.groups()) in README


def _output(page: str) -> str:
    """The words of the output of ``make fit`` in a page, without frames."""
    _, _, after = page.partition("<!-- output of make fit: ")
    output = after.partition("<!-- end of output -->")[0].partition("```")[2].partition("```")[0]
    return " ".join(re.sub(r"[─-╿]", " ", output).split())


def test_the_output_is_a_part_of_the_one_in_the_quickstart():
    whole = _output((DOCS / "quickstart.md").read_text(encoding="utf-8"))
    _, _, after = README.partition("<!-- output of make fit: ")
    lines = after.partition("```\n")[2].partition("```")[0].splitlines()
    assert len(lines) > 5
    for line in filter(None, (" ".join(line.split()) for line in lines)):
        assert line in whole


def _anchor(heading: str) -> str:
    """As GitHub makes one of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {_anchor(heading) for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings_that_are_there(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), link
        if anchor:
            assert anchor in _anchors(target), link


def test_the_index_names_every_page():
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    pages = {page.name for page in DOCS.glob("*.md")} - {"README.md"}
    assert {page for page in pages if f"({page}" not in index} == set()
