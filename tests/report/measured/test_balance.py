"""What ``meshfit balance`` shows."""

from rich.console import Console

from meshfit.report.measured.balance import balance_view

PART = {"seconds": 0.01, "kept_bytes": 2**20, "parameter_bytes": 2**10, "trained_bytes": 2**10}


def split(name, layers, seconds, *, fits=True):
    return {
        "name": name,
        "stage_layers": layers,
        "label": f"pp=2,stage_layers={layers[0]}:{layers[1]}",
        "seconds": seconds,
        "held": [2**20, 2**21],
        "slowest": 1.1,
        "fits": fits,
    }


def shown(*splits, **absent):
    document = {
        "label": "pp=2",
        "layers": 8,
        "measured_layers": 4,
        "micro_batch_size": 2,
        "parts": [PART | {"name": name} for name in ("embedding", "layer 0", "head")],
        "budget": 2**30,
        "splits": list(splits),
        "absent": absent,
    }
    console = Console(width=120)
    with console.capture() as captured:
        console.print(balance_view(document))
    return captured.get()


def test_the_balanced_split_is_given_as_a_layout_to_try():
    text = shown(split("even", [4, 4], [0.04, 0.06]), split("balanced", [5, 3], [0.05, 0.05]))
    assert "4 layers stand for all 8, each kind for its own." in text
    assert "16.7% shorter than with the even split: --layout pp=2,stage_layers=5:3" in text


def test_it_is_compared_with_the_split_that_is_given():
    given = split("given", [5, 3], [0.05, 0.05])
    text = shown(split("even", [4, 4], [0.04, 0.06]), given, given | {"name": "balanced"})
    assert "The given split is the balanced one." in text


def test_why_nothing_is_balanced_is_said():
    text = shown(split("even", [4, 4], [0.04, 0.06], fits=False), balanced="no split of 8 layers")
    assert "(too much)" in text
    assert "no split of 8 layers" in text
    assert "--layout" not in text
