import pytest

from meshfit.engines import engine_profile
from meshfit.errors import InputError
from meshfit.mesh.candidates import RECOMPUTE, SCHEDULES
from meshfit.mesh.spec import AXES


def test_native_runs_what_candidates_can_say():
    native = engine_profile("native")
    assert native.rank_order == AXES
    assert native.schedules == SCHEDULES
    assert native.recompute == RECOMPUTE
    assert native.zero_stages == (0, 1, 2, 3)


def test_an_unknown_engine_comes_with_the_nearest():
    with pytest.raises(InputError, match="unknown engine 'nativ'; did you mean 'native'"):
        engine_profile("nativ")
    with pytest.raises(InputError, match="unknown engine 'xyz'; known: native"):
        engine_profile("xyz")
