import pytest
from rich.console import Console

from meshfit.report.cells import memory_bar
from meshfit.report.fit import fit_table, fit_view, reasons
from meshfit.report.inventory import inventory_table
from meshfit.report.plan import plan_table, plan_view
from meshfit.report.violations import violations_list


def show(renderable, width=100):
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(renderable)
    return capture.get()


def test_the_plan_shows_every_candidate_with_verdict_and_binding_term(plan_document):
    text = show(plan_view(plan_document))
    assert "41 legal layouts, 42 rejected" in text
    for family in ("DDP (baseline)", "FSDP2", "FSDP2+TP", "PP+DDP"):
        assert family in text
    for word in ("fits", "tight", "does not fit", "compute", "tp_divides_kv_heads"):
        assert word in text


def test_the_plan_shows_no_more_than_the_top(plan_document):
    assert "PP+DDP" not in show(plan_view(plan_document, top=2))


@pytest.mark.parametrize(("total", "filled"), [(0, 1), (50, 4), (100, 8), (900, 8)])
def test_the_memory_bar_is_as_full_as_the_device(total, filled):
    bar = memory_bar({"total": total, "capacity": 100}, "fits")
    assert bar.plain.count("█") == filled
    assert bar.plain.count("█") + bar.plain.count("░") == 8


def test_memory_without_a_capacity_is_a_figure_without_a_bar():
    assert memory_bar({"total": 2**20, "capacity": None}, "fits").plain == "fits\n1.00 MiB"


def test_what_cpu_ranks_do_not_say_stands_above_the_winner(fit_document):
    text = show(fit_view(fit_document))
    note, winner = text.index("says nothing about GPUs"), text.index("Winner:")
    assert note < winner


@pytest.mark.parametrize("width", [80, 120, 200])
def test_every_column_of_the_fit_table_is_whole_at_any_width(fit_document, width):
    text = show(fit_table(fit_document), width)
    for figure in ("87.2\N{EN DASH}91.6 ms", "11,457", "346 MiB", "parity failed", "crash"):
        assert figure in text


@pytest.mark.parametrize("width", [40, 60])
def test_no_column_vanishes_on_a_narrow_terminal(plan_document, fit_document, width):
    for table in (
        plan_table(plan_document["candidates"]),
        fit_table(fit_document),
    ):
        text = show(table, width)
        assert all(len(line) <= width for line in text.splitlines())
        assert {"DDP", "FSDP2"} <= set(text.split())
        assert "\N{HORIZONTAL ELLIPSIS}" not in text


def test_a_failed_candidate_says_why_and_where(fit_document):
    text = show(reasons(fit_document), 200)
    assert "boom in layer 3 (rank 1, phase step 2, signal 6)" in text
    assert "the ratio is dp_replicate = 2" in text


def test_a_fit_without_winner_says_so_with_the_reason(fit_document):
    fit_document["winner"] = None
    fit_document["reason"] = "no candidate passed parity"
    text = show(fit_view(fit_document))
    assert "No winner. no candidate passed parity" in text


def test_markup_in_a_document_is_shown_as_text(fit_document):
    fit_document["candidates"][0]["reason"] = "won [bold]by[/bold] [/nothing]"
    fit_document["notes"] = ["a [red]note[/red]"]
    text = show(fit_view(fit_document), 200)
    assert "won [bold]by[/bold] [/nothing]" in text
    assert "a [red]note[/red]" in text


def test_the_inventory_lists_parts_and_total(fit_document):
    text = show(inventory_table(fit_document["model"]))
    assert "mlp or other" in text
    assert "50.0%" in text
    assert "1,000,000" in text


def test_violations_show_rule_message_nearest_and_option():
    text = show(
        violations_list(
            [
                {
                    "rule": "tp_divides_kv_heads",
                    "message": "tp 3 does not divide 8 [heads]; nearest tp=2",
                    "values": {"tp": 3},
                    "nearest": {"tp": 2},
                    "option": "tensor_parallel_degree",
                }
            ]
        )
    )
    for part in ("tp_divides_kv_heads", "8 [heads]", "tp=2", "tensor_parallel_degree"):
        assert part in text


def test_no_violation_says_so():
    assert show(violations_list([])).strip() == "No rule is broken."


def test_a_plan_in_which_nothing_fits_says_so_and_what_is_needed(plan_document):
    first = plan_document["candidates"][0]
    assert "Nothing fits" not in show(plan_view(plan_document))
    without = {**plan_document, "candidates": [{**first, "verdict": "does_not_fit"}]}
    assert "Nothing fits" in show(plan_view(without))
