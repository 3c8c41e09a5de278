"""What every test is kept from: files of the person who runs it, how busy their machine is, and luck.

A commit that passes once passes always: Hypothesis draws the same examples each time. ``make test-all``
draws others (``--hypothesis-profile search``).
"""

import pytest
from hypothesis import HealthCheck, settings

BUSY_MACHINE = (HealthCheck.too_slow,)
settings.register_profile("search", deadline=None, suppress_health_check=BUSY_MACHINE)
settings.register_profile("same", settings.get_profile("search"), derandomize=True)
settings.load_profile("same")


@pytest.fixture(autouse=True, scope="session")
def no_files_of_a_person(tmp_path_factory):
    """Their catalogue and calibration, which change predictions, and which real runs write to."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        patch.delenv("MESHFIT_CATALOGUE", raising=False)
        yield
