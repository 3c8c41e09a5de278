import time

import pytest

from meshfit.errors import InputError
from meshfit.record.variables import CANDIDATE_VARIABLE
from meshfit.run.faults import FAULT_VARIABLE, Fault, InjectedFault, fault_at, parse_faults


def test_without_the_variable_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FAULT_VARIABLE, raising=False)
    assert fault_at(0, "train", 1) is False


def test_a_fault_strikes_only_where_it_is_asked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FAULT_VARIABLE, "raise:rank=1:step=2:phase=train")
    for rank, phase, step in ((0, "train", 2), (1, "train", 1), (1, "build", 2)):
        assert fault_at(rank, phase, step) is False
    with pytest.raises(InjectedFault, match="rank 1, phase train, step 2"):
        fault_at(1, "train", 2)


def test_what_is_left_out_matches_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FAULT_VARIABLE, "nan")
    assert fault_at(3, "anything", 9) is True


def test_a_fault_can_be_aimed_at_one_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FAULT_VARIABLE, "nan:candidate=tp=2,pp=2")
    monkeypatch.setenv(CANDIDATE_VARIABLE, "tp=4")
    assert fault_at(0, "train", 1) is False
    monkeypatch.setenv(CANDIDATE_VARIABLE, "tp=2,pp=2")
    assert fault_at(0, "train", 1) is True


def test_several_faults_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FAULT_VARIABLE, "nan:step=1; raise:step=2")
    assert fault_at(0, "train", 1) is True
    with pytest.raises(InjectedFault):
        fault_at(0, "train", 2)


def test_a_slow_rank_takes_as_long_as_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FAULT_VARIABLE, "slow:rank=0:seconds=0.05")
    before = time.perf_counter()
    fault_at(0, "train", 1)
    assert time.perf_counter() - before >= 0.05


def test_all_settings_are_read() -> None:
    assert parse_faults("exit:rank=1:step=2:code=9") == (
        Fault(kind="exit", rank=1, step=2, code=9),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kil:rank=1", "unknown kind 'kil'; did you mean 'kill'?"),
        ("kill:ranks=1", "unknown key 'ranks'; did you mean 'rank'?"),
        ("kill:rank=one", "rank must be a whole number, not 'one'"),
        ("slow:seconds=long", "seconds must be a number, not 'long'"),
        ("wobble", "unknown kind 'wobble'; known: kill, raise"),
    ],
)
def test_a_fault_that_cannot_be_read_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_faults(text)
    assert message in str(caught.value)
