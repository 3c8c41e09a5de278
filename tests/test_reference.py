"""The generated references of docs/ say what the code says."""

import re
from typing import NotRequired, TypedDict

import pytest

from meshfit.job.schema import JobFile
from meshfit.serve.job.schema import ServingJobFile
from tools.cli_page import cli_page, commands
from tools.job_page import READ_BY, SERVED_BY, job_page, keys_without_meaning
from tools.json_page import PRINTED, json_page
from tools.pages import DOCS
from tools.rules_page import rules_page
from tools.source_keys import keys_of_class, keys_of_document


@pytest.mark.parametrize(
    ("name", "page"),
    [("rules", rules_page), ("cli", cli_page), ("job", job_page), ("json", json_page)],
)
def test_a_page_is_what_the_code_says(name, page):
    """When it differs: ``make docs``."""
    assert (DOCS / f"{name}.md").read_text(encoding="utf-8") == page()


def test_every_key_of_a_job_file_has_a_meaning():
    """When one is missing: a docstring under the key, in its schema."""
    assert keys_without_meaning() == []


@pytest.mark.parametrize(("kind", "read_by"), [(JobFile, READ_BY), (ServingJobFile, SERVED_BY)])
def test_who_reads_a_block_names_blocks_and_commands_that_are_there(kind, read_by):
    assert {path.partition(".")[0] for path in read_by} <= kind.model_fields.keys()
    named = {words for readers in read_by.values() for words in re.findall(r"`([^`]+)`", readers)}
    known = {words.removeprefix("meshfit ") for words in commands()}
    assert {words.partition(" --")[0] for words in named} <= known


def test_every_command_that_prints_json_has_its_document_described():
    """When one is missing: its type or builder in ``tools.json_page.PRINTED``."""
    printing = {
        words.removeprefix("meshfit ")
        for words, command in commands().items()
        if any("--json" in parameter.opts for parameter in command.params)
    }
    assert printing - PRINTED.keys() == set()


class Described(TypedDict):
    """A document.

    Attributes:
        low, high: seconds,
            of all.
    """

    low: float
    high: float
    name: NotRequired[str]
    """``a`` name."""


def test_keys_of_a_class_have_what_is_said_below_them_or_among_its_attributes():
    assert [(key.name, key.meaning) for key in keys_of_class(Described)] == [
        ("low", "seconds, of all."),
        ("high", "seconds, of all."),
        ("name", "`a` name."),
    ]


def built(rows, is_long):
    document = {
        "rows": [{"name": row} for row in rows],
        "by_name": {row: {"size": 1} for row in rows},
    }
    document["end"] = {"of": 1}
    more = {"long": True} if is_long else {"short": True}
    return document | more | {"last": rows[0]["not a key"]}


def test_keys_of_a_builder_are_followed_through_its_names_lists_and_mappings():
    assert keys_of_document(built) == [
        "rows",
        "rows[].name",
        "by_name",
        "by_name.*.size",
        "end",
        "end.of",
        "long",
        "short",
        "last",
    ]
