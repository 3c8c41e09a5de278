"""Why a layout's step is as long as it is: by what was profiled, else by what was predicted."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from meshfit.breakdown import Prediction
from meshfit.compare.candidate import MeasuredCandidate
from meshfit.compare.terms import as_predicted, profile_terms, term_in_words
from meshfit.record.schema import StepProfile
from meshfit.units import format_duration

Basis = Literal["measured", "predicted"]


@dataclass(frozen=True, kw_only=True)
class Cause:
    """The term that decides.

    Attributes:
        term: of the winner its largest one; of another layout the one that exceeds the winner's most.
        basis: ``measured`` in profiled steps, ``predicted`` where there are none.
        seconds: the term's, on average over ranks; against_s: the same of the winner, None for the
            winner itself.
        step_s: all terms of that step.
        predicted_term: the term that predictions name, where it is another one than was measured.
    """

    term: str
    basis: Basis
    seconds: float
    against_s: float | None
    step_s: float
    predicted_term: str | None = None


def cause_of(candidate: MeasuredCandidate, winner: MeasuredCandidate) -> Cause | None:
    """What binds the winner, or what another layout loses most in; None where nothing tells, or where
    no term is longer than the winner's."""
    predicted = _predicted_cause(candidate, winner)
    if candidate.profile is None or winner.profile is None:
        return predicted
    measured = _measured_cause(candidate.profile, winner.profile)
    if measured is None or predicted is None or as_predicted(measured.term) == predicted.term:
        return measured
    return replace(measured, predicted_term=predicted.term)


def binds(cause: Cause) -> str:
    """``What binds it is compute (measured: 127 ms of a profiled step of 242 ms)``."""
    if cause.basis == "predicted":
        return f"What binds it is {term_in_words(cause.term)} (by prediction)"
    return (
        f"What binds it is {term_in_words(cause.term)} (measured: {format_duration(cause.seconds)} of "
        f"a profiled step of {format_duration(cause.step_s)}{_other_than_predicted(cause)})"
    )


def loses(cause: Cause) -> str:
    """``it loses most in bubble (measured: 95.6 ms, the winner 0)``."""
    if cause.basis == "predicted":
        return f"by prediction it loses most in {term_in_words(cause.term)}"
    ours, theirs = format_duration(cause.seconds), cause.against_s
    against = f"the winner {format_duration(theirs)}" if theirs else "the winner none"
    return (
        f"it loses most in {term_in_words(cause.term)} (measured: {ours}, {against}"
        f"{_other_than_predicted(cause)})"
    )


def _other_than_predicted(cause: Cause) -> str:
    if cause.predicted_term is None:
        return ""
    return f"; predicted was {term_in_words(cause.predicted_term)}"


def _measured_cause(own: StepProfile, winner: StepProfile) -> Cause | None:
    """What is told apart in only one of the two steps is not told apart at all."""
    apart = own.host_s is not None and winner.host_s is not None
    terms = profile_terms(own, apart=apart)
    if own is not winner:
        return _largest("measured", terms, profile_terms(winner, apart=apart))
    largest = _largest("measured", terms, {})
    return None if largest is None else replace(largest, against_s=None)


def _predicted_cause(candidate: MeasuredCandidate, winner: MeasuredCandidate) -> Cause | None:
    if candidate.predicted is None or winner.predicted is None:
        return None
    own, best = _predicted_terms(candidate.predicted), _predicted_terms(winner.predicted)
    if candidate is not winner:
        return _largest("predicted", own, best)
    term = candidate.predicted.binding
    return Cause(
        term=term,
        basis="predicted",
        seconds=own.get(term, 0.0),
        against_s=None,
        step_s=sum(own.values()),
    )


def _predicted_terms(prediction: Prediction) -> dict[str, float]:
    seconds = prediction.time.as_json()
    return {name: value for name, value in seconds.items() if name != "step" and value is not None}


def _largest(basis: Basis, own: Mapping[str, float], against: Mapping[str, float]) -> Cause | None:
    """The term of ``own`` that exceeds the same of ``against`` most; None where none does."""
    excess = {term: seconds - against.get(term, 0.0) for term, seconds in own.items()}
    term = max(excess, key=lambda name: excess[name], default=None)
    if term is None or excess[term] <= 0:
        return None
    return Cause(
        term=term,
        basis=basis,
        seconds=own[term],
        against_s=against.get(term, 0.0),
        step_s=sum(own.values()),
    )
