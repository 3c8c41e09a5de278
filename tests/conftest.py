"""What every test is kept from: files of the person who runs it, and how busy their machine is."""

import pytest
from hypothesis import settings

settings.register_profile("meshfit", deadline=None)
settings.load_profile("meshfit")


@pytest.fixture(autouse=True, scope="session")
def no_files_of_a_person(tmp_path_factory):
    """Their catalogue and calibration, which change predictions, and which real runs write to."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        patch.delenv("MESHFIT_CATALOGUE", raising=False)
        yield
