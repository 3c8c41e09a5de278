from meshfit.report.parts.violations import violations_list
from tests.report.terminal import shown


def test_violations_show_rule_message_nearest_and_option():
    text = shown(
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
    assert shown(violations_list([])).strip() == "No rule is broken."
