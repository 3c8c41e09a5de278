"""Verdicts of ``judge``. Cases named by an id restate defects reported in public issue trackers."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshfit.compare.parity import TOLERANCES, judge
from meshfit.mesh.spec import LayoutSpec
from meshfit.record.schema import ParameterGradient, Parity, ReplayedSteps, RoutingReport, RunResult
from meshfit.workload.training import PRECISIONS, TrainingSpec

LOSSES = (5.5, 5.4, 5.3, 5.2, 5.1)
NORMS = (1.5, 1.4, 1.3, 1.2, 1.1)
NAMES = ("model.embed_tokens.weight", "model.norm.weight", "lm_head.weight")
SAMPLES = ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9))


def gradients(ratio: float = 1.0, error: float | None = None) -> tuple[ParameterGradient, ...]:
    """Gradients scaled by ``ratio`` and by nothing else, unless ``error`` says more."""
    off = abs(ratio - 1) if error is None else error
    return tuple(ParameterGradient(name=name, error=off, ratio=ratio) for name in NAMES)


REFERENCE = RunResult(
    losses=LOSSES,
    gradient_norms=NORMS,
    useful_tokens_per_step=1024,
    gradients=gradients(),
    ranks=(),
    sample_ids=SAMPLES,
)


def training(precision: str = "fp32", global_batch_size: int = 8) -> TrainingSpec:
    return TrainingSpec(
        sequence_length=128, global_batch_size=global_batch_size, precision=PRECISIONS[precision]
    )


def verdict(
    layout: LayoutSpec | None = None,
    *,
    precision: str = "fp32",
    global_batch_size: int = 8,
    kind: str = "single_process",
    reference: RunResult = REFERENCE,
    **changes,
) -> Parity:
    """The verdict on a run that is the reference but for ``changes``."""
    return judge(
        replace(reference, **changes),
        reference,
        layout=layout or LayoutSpec(),
        training=training(precision, global_batch_size),
        kind=kind,
    )


def scaled(values: tuple[float, ...], factor: float) -> tuple[float, ...]:
    return tuple(value * factor for value in values)


def test_a_run_equal_to_its_reference_passes_without_a_word():
    found = verdict()
    assert found.ok
    assert (found.message, found.factor) == ("", None)
    assert (found.loss_error, found.gradient_norm_error, found.gradient_error) == (0, 0, 0)


@pytest.mark.parametrize("precision", ["fp32", "bf16_mixed"])
@pytest.mark.parametrize("field", ["losses", "gradient_norms", "gradients"])
@pytest.mark.parametrize(("share", "passes"), [(0.9, True), (1.1, False)])
def test_each_quantity_is_held_to_its_own_tolerance(precision, field, share, passes):
    tolerance = TOLERANCES[precision]
    allowed = tolerance.loss if field == "losses" else tolerance.gradient
    changed = {
        "losses": scaled(LOSSES, 1 + share * allowed),
        "gradient_norms": scaled(NORMS, 1 + share * allowed),
        "gradients": gradients(error=share * allowed),
    }[field]
    assert verdict(precision=precision, **{field: changed}).ok is passes


@pytest.mark.parametrize("step", range(7))
def test_only_the_first_five_steps_are_judged(step):
    losses = [*LOSSES, 5.0, 4.9]
    reference = replace(REFERENCE, losses=tuple(losses), gradient_norms=(*NORMS, 1.0, 0.9))
    losses[step] *= 1.01
    assert verdict(reference=reference, losses=tuple(losses)).ok is (step >= 5)


def test_the_worst_parameter_is_named():
    worse = (*gradients()[:2], ParameterGradient(name=NAMES[2], error=1e-3, ratio=1.0))
    found = verdict(gradients=worse)
    assert (found.worst_parameter, found.gradient_error) == ("lm_head.weight", 1e-3)
    assert "1 of 3 parameters (lm_head.weight)" in found.message
    assert "the loss agrees" in found.message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"losses": LOSSES[:3]}, "the run has losses of 3 steps, but 5 are judged"),
        ({"losses": ()}, "the run has losses of 0 steps, but 5 are judged"),
        (
            {"losses": (*LOSSES[:4], math.nan)},
            "the run has losses that are not finite (nan in step 5)",
        ),
        (
            {"gradient_norms": (math.inf, *NORMS[1:])},
            "the run has gradient norms that are not finite (inf in step 1)",
        ),
        (
            {"gradients": gradients(error=math.nan)},
            "the run has gradients that are not finite, or not zero where they should be: "
            + ", ".join(NAMES),
        ),
        ({"gradients": gradients()[:1]}, "gradients are missing of lm_head.weight, model.norm.weight"),
        ({"gradients": ()}, "the run compared no gradients with the reference's"),
        (
            {"sample_ids": ((0, 1), (3, 2), *SAMPLES[2:])},
            "the runs saw different samples in step 2: 3, 2 against 2, 3",
        ),
        ({"sample_ids": SAMPLES[:2]}, "the runs saw different samples: of 2 steps against 5"),
    ],
)  # fmt: skip
def test_runs_that_cannot_be_compared_fail_with_the_reason(changes, message):
    found = verdict(**changes)
    assert not found.ok
    assert found.message == message
    assert found.factor is None


def test_an_error_that_cannot_be_worked_out_is_infinite_and_not_zero():
    found = verdict(losses=LOSSES[:3], gradients=gradients(error=math.nan))
    assert (found.loss_error, found.gradient_error) == (math.inf, math.inf)


def test_a_reference_that_is_itself_broken_is_to_blame():
    broken = replace(REFERENCE, losses=(math.nan, *LOSSES[1:]))
    assert verdict(reference=broken).message.startswith("the reference has losses")


def test_against_a_mere_reference_layout_gradients_need_not_have_been_compared():
    found = verdict(kind="reference", gradients=())
    assert found.ok
    assert (found.gradient_error, found.worst_parameter) == (None, None)


def test_a_step_that_agrees_before_later_ones_do_not_points_at_the_update():
    found = verdict(losses=(*LOSSES[:2], *scaled(LOSSES[2:], 1.01)))
    assert found.message.startswith(
        "the first step agrees, but the loss of step 3 is off by 1.0e-02"
    )
    assert "the update differs" in found.message


FACTOR_CASES = [
    (4.0, LayoutSpec(dp_replicate=4), "the data-parallel degree (dp=4)", "summed"),
    (0.25, LayoutSpec(dp_shard=4), "one over the data-parallel degree (dp=4)", "averaged"),
    (0.5, LayoutSpec(tp=2), "one over the tensor-parallel degree (tp=2)", "averaged"),
    (8.0, LayoutSpec(), "the number of micro-batches (m=8)", "summed"),
    (
        8.0,
        LayoutSpec(dp_replicate=2, tp=4, micro_batch_size=4),
        "the product of the data-parallel degree (dp=2) and the tensor-parallel degree (tp=4)",
        "summed",
    ),
]


@pytest.mark.parametrize(("ratio", "layout", "factor", "why"), FACTOR_CASES)
def test_gradients_off_by_a_known_factor_say_which(ratio, layout, factor, why):
    found = verdict(layout, gradients=gradients(ratio), gradient_norms=scaled(NORMS, ratio))
    assert not found.ok
    assert found.factor == factor
    assert found.message.startswith(
        f"the gradients of all 3 parameters are {ratio:.4g} times the reference: {factor}; {why}"
    )


def test_some_parameters_off_by_a_known_factor_are_named_with_it():
    partly = (ParameterGradient(name="model.norm.weight", error=0.5, ratio=0.5), *gradients()[::2])
    found = verdict(LayoutSpec(tp=2), gradients=partly)
    assert found.factor == "one over the tensor-parallel degree (tp=2)"
    assert "the gradients of 1 of 3 parameters (model.norm.weight) are 0.5 times" in found.message


def test_gradients_that_point_elsewhere_are_not_explained_by_their_scale():
    found = verdict(LayoutSpec(dp_replicate=4), gradients=gradients(ratio=4.0, error=3.5))
    assert found.factor is None
    assert "the backward, or the reduction of gradients over ranks, differs" in found.message


def test_a_scale_that_nothing_explains_is_said_to_be_one():
    found = verdict(LayoutSpec(dp_replicate=4), gradients=gradients(ratio=1.37))
    assert found.message.endswith("only their scale differs, by no known factor")


def test_bf16_noise_does_not_hide_a_factor():
    noisy = tuple(
        ParameterGradient(name=name, error=math.hypot(ratio - 1, 0.01), ratio=ratio)
        for name, ratio in zip(NAMES, (3.97, 4.02, 4.0), strict=True)
    )
    found = verdict(LayoutSpec(dp_shard=4), precision="bf16_mixed", gradients=noisy)
    assert found.factor == "the data-parallel degree (dp=4)"


@given(
    st.lists(st.floats(0.1, 10), min_size=5, max_size=5),
    st.lists(st.floats(-4e-6, 4e-6), min_size=5, max_size=5),
)
def test_rounding_within_tolerance_never_fails(losses, rounding):
    reference = replace(REFERENCE, losses=tuple(losses))
    rounded = tuple(loss * (1 + off) for loss, off in zip(losses, rounding, strict=True))
    assert verdict(reference=reference, losses=rounded).ok


def test_d02_a_gradient_ratio_of_exactly_cp_is_a_scale_over_the_wrong_group():
    """Base dp=8 against dp=2, cp=4 at the same global batch: loss equal, gradients times cp."""
    layout = LayoutSpec(dp_shard=2, cp=4, micro_batch_size=4)
    found = verdict(layout, gradients=gradients(4.0), gradient_norms=scaled(NORMS, 4.0))
    assert found.factor == "the context-parallel degree (cp=4)"
    assert "summed over a group where they should be averaged" in found.message


def test_d02_is_right_when_losses_and_norms_agree_within_bf16_noise():
    found = verdict(
        LayoutSpec(dp_shard=2, cp=4),
        precision="bf16_mixed",
        losses=scaled(LOSSES, 1.0005),
        gradient_norms=scaled(NORMS, 0.99),
        gradients=gradients(error=0.01),
    )
    assert found.ok


AUXILIARY = (1.2, 1.1, 1.0, 0.9, 0.8)


def routing(auxiliary: tuple[float, ...]) -> RoutingReport:
    return RoutingReport(
        layers=(0,), tokens_per_expert=((8, 8),) * 5, tokens_per_layer=((40, 40),),
        imbalance=(1.0,) * 5, entropy=(0.7,) * 5, dropped=(0,) * 5, padded=(0,) * 5,
        auxiliary_loss=auxiliary, auxiliary_scope="rank", loss_by_route=((5.0, 5.0),) * 5,
    )  # fmt: skip


def test_d04_each_term_of_the_loss_is_compared_by_itself():
    """An auxiliary loss that scales with tp: the cross entropy agrees, and runs with other tp drift."""
    reference = replace(REFERENCE, routing=routing(AUXILIARY))
    layout = LayoutSpec(tp=2, sp=True)
    same = verdict(layout, reference=reference)
    assert same.ok
    assert same.auxiliary_error == 0.0
    found = verdict(layout, reference=reference, routing=routing(scaled(AUXILIARY, 2.0)))
    assert not found.ok
    assert found.auxiliary_error == 1.0
    assert found.factor == "the tensor-parallel degree (tp=2)"
    assert found.message.startswith(
        "the cross entropy agrees, but the auxiliary loss of the first step is 2.4 against 1.2"
    )


@pytest.mark.parametrize(
    ("ours", "theirs", "message"),
    [
        (AUXILIARY, (), "the run's routers add to the loss, the reference's do not"),
        ((), AUXILIARY, "the reference's routers add to the loss, the run's do not"),
        (
            (1.2, 1.1, 1.0, 0.9, 0.9),
            AUXILIARY,
            "the first step agrees, but the auxiliary loss of step 5 is off",
        ),
        ((1.3, *AUXILIARY[1:]), AUXILIARY, "over other tokens, or routers choose otherwise"),
    ],
)
def test_d04_a_term_that_is_missing_or_drifts_fails(ours, theirs, message):
    reference = replace(REFERENCE, routing=routing(theirs))
    assert message in verdict(reference=reference, routing=routing(ours)).message


def test_d04_with_replayed_choices_the_replays_term_is_judged():
    reference = replace(REFERENCE, routing=routing(AUXILIARY))
    replayed = ReplayedSteps(
        losses=LOSSES, gradient_norms=NORMS, differing_tokens=3, auxiliary_loss=AUXILIARY
    )
    own = routing(scaled(AUXILIARY, 1.5))
    assert verdict(reference=reference, routing=own, replayed=replayed).ok


def test_a_dense_model_has_one_term():
    assert verdict().auxiliary_error is None


def test_d06_a_mean_of_micro_batch_means_is_among_the_causes_of_a_wrong_loss():
    """Micro-batches of 100 and 900 tokens with loss sums 300 and 1800: 2.1 right, 2.5 wrong."""
    tokens, sums = (100, 900), (300.0, 1800.0)
    right = sum(sums) / sum(tokens)
    wrong = sum(loss / count for loss, count in zip(sums, tokens, strict=True)) / 2
    assert (right, wrong) == (2.1, 2.5)
    reference = replace(REFERENCE, losses=(right, *LOSSES[1:]))
    found = verdict(reference=reference, global_batch_size=2, losses=(wrong, *LOSSES[1:]))
    assert not found.ok
    assert "2.5 against 2.1" in found.message
    assert "a mean of micro-batch or rank means" in found.message


def test_d06_one_micro_batch_on_one_rank_has_no_means_to_average():
    found = verdict(global_batch_size=1, losses=scaled(LOSSES, 1.2))
    assert "mean" not in found.message


def test_d08_a_norm_low_by_the_root_of_the_shards_is_one_shards_norm():
    """Four shards, 1.0 logged where the true norm is 2.0."""
    reference = replace(REFERENCE, gradient_norms=(2.0,) * 5)
    found = verdict(LayoutSpec(dp_shard=4), reference=reference, gradient_norms=(1.0,) * 5)
    assert found.factor == "one over the square root of the data-parallel degree (dp=4)"
    assert found.message.startswith(
        "the gradients agree, but the gradient norm of the first step is 1 against 2"
    )
    assert found.message.endswith("it is the norm of this rank's shard, not of all of them")


def test_d08_a_norm_high_by_the_root_of_the_replicas_counts_copies():
    layout = LayoutSpec(dp_replicate=2, dp_shard=8, micro_batch_size=1)
    found = verdict(layout, gradient_norms=scaled(NORMS, math.sqrt(2)))
    assert found.factor == "the square root of the replicas of a shard (dp_replicate=2)"
    assert found.message.endswith("squares are summed over ranks that hold the same")


@pytest.mark.parametrize(("tp", "loss"), [(2, 3.12), (4, 3.35), (8, 4.46)])
def test_d10_a_first_loss_that_grows_with_tp_is_put_down_to_dropout_among_others(tp, loss):
    """3.07 at tp=1; both dropouts at 0.1, with a random stream on every rank."""
    reference = replace(REFERENCE, losses=(3.07, *LOSSES[1:]))
    found = verdict(LayoutSpec(tp=tp), reference=reference, losses=(loss, *LOSSES[1:]))
    assert found.factor is None
    assert "active dropout" in found.message


def test_d12_a_first_loss_that_differs_is_put_down_to_per_rank_initial_weights_among_others():
    """tp=1 against tp=2 from equal seeds instead of one saved checkpoint."""
    found = verdict(LayoutSpec(tp=2), losses=scaled(LOSSES, 1.003))
    assert "other initial weights (every rank drew its own?)" in found.message


def test_d16_a_loss_of_minus_one_under_pp_is_another_stages_placeholder():
    """With pp=2 rank 0 logs -1.0; the loss is on the last stage."""
    found = verdict(LayoutSpec(pp=2), losses=(-1.0, *LOSSES[1:]))
    assert not found.ok
    assert found.message == (
        "the run has losses below zero (-1 in step 1): with pp=2 only the last stage has the loss, "
        "and another stage's placeholder was taken for it"
    )
