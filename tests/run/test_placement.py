from meshfit.run.placement import misplacement, require_placement


def test_hosts_in_the_order_of_their_names_as_text_are_explained() -> None:
    message = misplacement(["node2"] * 2 + ["node10"] * 2, ["node10"] * 2 + ["node2"] * 2)
    assert message.startswith(
        "ranks are on node10 (2), node2 (2), but were planned on node2 (2), node10 (2); "
        "torchrun's c10d rendezvous orders hosts by name as text: name them so"
    )


def test_any_other_order_is_told_without_a_guess_at_its_cause() -> None:
    assert misplacement(["a", "a", "b"], ["a", "b", "a"]) == (
        "ranks are on a (1), b (1), a (1), but were planned on a (2), b (1)"
    )


def test_without_planned_hosts_any_will_do() -> None:
    require_placement(())
