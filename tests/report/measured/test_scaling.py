from rich.console import Console

from meshfit.compare.scaling import ScalingPoint, scaling
from meshfit.funnel.sweep.scale import scale_document
from meshfit.report.measured.scaling import scale_view


def point(ranks: int, tokens_per_s: float, *, shares_cores: bool = False) -> ScalingPoint:
    return ScalingPoint(
        ranks=ranks,
        label=f"dp_shard={ranks}",
        tokens_per_s=tokens_per_s,
        step_time_s=1.0,
        global_batch=8,
        sequence_length=64,
        hardware=f"{ranks} x cpu",
        conditions={"ranks share cores": shares_cores},
    )


def shown(*points: ScalingPoint) -> str:
    console = Console(width=200)
    with console.capture() as captured:
        console.print(scale_view(scale_document("strong", "dp_shard", scaling(points))))
    return captured.get()


def test_every_point_shows_its_hardware_batch_and_denominator() -> None:
    text = shown(point(1, 100.0), point(2, 150.0))
    assert "strong scaling along dp_shard: the global batch stays" in text
    for words in ("1 (baseline)", "2 x cpu", "8 x 64", "75.0%", "200"):
        assert words in text


def test_what_differs_and_what_is_refused_is_said() -> None:
    text = shown(
        point(1, 100.0), point(2, 150.0, shares_cores=True), point(4, 900.0, shares_cores=True)
    )
    assert "2 ranks: differs in ranks share cores False -> True" in text
    assert "4 ranks: refused: 225.0% of a baseline that is not its equal" in text
