import json
from dataclasses import replace

import pytest

from meshfit.errors import InputError
from meshfit.predict.calibration import Correction, formula_only, load_calibration
from tests.predict.builders import cluster


def test_a_calibration_survives_its_file(tmp_path):
    calibration = replace(
        formula_only(cluster(), "native"),
        compute=Correction(factor=1.3, spread=1.2, basis="measured_here", samples=7),
    )
    calibration.save(tmp_path / "calibration.json")
    assert load_calibration(tmp_path / "calibration.json") == calibration


def test_without_measurements_the_interval_of_cpu_ranks_is_wider():
    gpu, cpu = (formula_only(cluster(device_type=kind), "native") for kind in ("cuda", "cpu"))
    assert gpu.step_time == Correction(factor=1.0, spread=2.0, basis="formula", samples=0)
    assert cpu.step_time.spread > gpu.step_time.spread


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "has schema_version None; this meshfit reads 1"),
        ('{"schema_version": 2}', "has schema_version 2; this meshfit reads 1"),
        ('{"schema_version": 1}', "has other keys than expected"),
    ],
)
def test_a_file_that_is_no_calibration_is_refused(tmp_path, text, message):
    path = tmp_path / "calibration.json"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        load_calibration(path)


def test_an_unknown_key_is_refused(tmp_path):
    path = tmp_path / "calibration.json"
    formula_only(cluster(), "native").save(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"extra": 1}))
    with pytest.raises(InputError, match="other keys"):
        load_calibration(path)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(InputError, match="No such file"):
        load_calibration(tmp_path / "none.json")
