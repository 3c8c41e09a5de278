from meshfit.report.inputs.inventory import inventory_table
from tests.report.terminal import shown


def test_the_inventory_lists_parts_and_total(fit_document):
    text = shown(inventory_table(fit_document["model"]))
    assert "mlp or other" in text
    assert "50.0%" in text
    assert "1,000,000" in text
