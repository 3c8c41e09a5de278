import re
import subprocess
import sys
from copy import deepcopy
from html.parser import HTMLParser

import pytest

from meshfit.report.page.page import render_page

HOSTILE = '<script>alert("x")</script> $\\frac{1}{2}$ &amp; \N{SNOWMAN}'
VOID = {"meta", "br", "use", "path", "rect", "link", "img"}


class Structure(HTMLParser):
    """Fails on tags that do not match; collects tags, ids and attribute values."""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.ids, self.values, self.text = [], set(), [], [], []

    def handle_starttag(self, tag, attrs):
        self._note(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self._note(tag, attrs)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)

    def _note(self, tag, attrs):
        self.tags.add(tag)
        self.ids += [value for key, value in attrs if key == "id"]
        self.values += [value for _, value in attrs if value]


def parse(html):
    structure = Structure()
    structure.feed(html)
    structure.close()
    assert structure.open == []
    return structure


def words_of(html):
    return " ".join(" ".join(parse(html).text).split())


def test_every_candidate_is_on_the_page_with_its_layout_and_outcome(fit_document):
    text = words_of(render_page(fit_document))
    for candidate in fit_document["candidates"]:
        for key, value in candidate["layout"].items():
            assert f"{key}={value}" in text
    for outcome in ("parity failed", "crash", "boom in layer 3 (rank 1, phase step 2, signal 6)"):
        assert outcome in text


def test_the_page_needs_no_network_and_no_script(fit_document):
    html = render_page(fit_document)
    structure = parse(html)
    assert structure.tags.isdisjoint({"script", "link", "img", "iframe", "object", "embed"})
    assert not re.search(r"(https?:)?//\w", " ".join(structure.values))
    assert "@import" not in html
    assert not re.search(r"url\((?!#)", html)


def test_the_same_document_gives_the_same_page(fit_document):
    assert render_page(fit_document) == render_page(deepcopy(fit_document))


def test_ids_are_unique_and_references_resolve(fit_document):
    structure = parse(render_page(fit_document))
    assert len(structure.ids) == len(set(structure.ids))
    references = {value[1:] for value in structure.values if value.startswith("#")}
    references |= set(re.findall(r"url\(#([^)]+)\)", " ".join(structure.values)))
    assert references <= set(structure.ids)


def test_what_cpu_ranks_do_not_say_stands_above_the_winner(fit_document):
    text = words_of(render_page(fit_document))
    assert text.index("says nothing about GPUs") < text.index("Winner")


def test_all_four_charts_are_drawn(fit_document):
    html = render_page(fit_document)
    for name in ("throughput", "memory", "ranks", "losses"):
        assert f'id="{name}-axes_1"' in html


def test_no_colour_placeholder_is_left_in_a_chart(fit_document):
    assert not re.search(r"#0001?0\d", render_page(fit_document))


def test_hostile_strings_are_text(fit_document):
    document = deepcopy(fit_document)
    document["job"]["name"] = document["reason"] = document["notes"][0] = HOSTILE
    document["environment"][HOSTILE] = HOSTILE
    document["model"]["name"] = HOSTILE
    document["winner"]["engine"] = HOSTILE
    for candidate in document["candidates"]:
        candidate["family"] = candidate["reason"] = HOSTILE
        for rank in candidate["ranks"]:
            rank["host"] = HOSTILE
    structure = parse(render_page(document))
    assert "script" not in structure.tags
    assert HOSTILE in "".join(structure.text)


def test_without_a_winner_the_page_says_so(fit_document):
    fit_document["winner"] = None
    fit_document["reason"] = "every candidate failed parity"
    text = words_of(render_page(fit_document))
    assert "No winner every candidate failed parity" in text


def test_a_sweep_in_which_all_failed_has_a_page_without_charts(
    fit_document, make_candidate, make_record
):
    failed = make_record("ddp", outcome="hang", result=None, parity=None, prediction=None)
    fit_document["candidates"] = [make_candidate(failed)]
    fit_document["winner"] = None
    structure = parse(render_page(fit_document))
    assert "svg" not in structure.tags
    assert "hang" in " ".join(structure.text)


def test_the_winner_comes_first_and_the_others_from_the_fastest_on(fit_document):
    fit_document["candidates"].reverse()
    text = words_of(render_page(fit_document))
    order = [text.index(f"{letter} {family}") for letter, family in
             (("A", "DDP"), ("B", "PP+DDP"), ("C", "FSDP2"), ("D", "FSDP2+TP"), ("E", "PP+DDP"))]  # fmt: skip
    assert order == sorted(order)


def test_a_diverged_loss_is_drawn_as_far_as_it_goes(fit_document):
    fit_document["candidates"][0]["losses"] = [5.0, float("inf"), float("nan"), 5.0]
    assert 'id="losses-axes_1"' in render_page(fit_document)


OPTIONAL = ("plan", "reference", "headroom", "warmup_steps", "judged_steps", "created_at")


@pytest.mark.parametrize("missing", [*OPTIONAL, "all"])
def test_what_a_document_may_lack_it_may_lack(fit_document, missing):
    for key in OPTIONAL if missing == "all" else (missing,):
        del fit_document[key]
    if missing == "all":
        fit_document |= {"model": {}, "topology": {}, "environment": {}, "job": {}}
    assert "Candidates" in words_of(render_page(fit_document))


def test_a_parity_that_could_not_compare_gradients_shows_a_dash(fit_document):
    fit_document["candidates"][0]["parity"] |= {"gradient_error": None, "worst_parameter": None}
    assert "\N{EN DASH}" in words_of(render_page(fit_document))


def test_importing_the_page_does_not_import_matplotlib():
    """Matplotlib costs half a second: it belongs inside the functions of charts.py that draw."""
    code = "import sys, meshfit.report.page.page; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
