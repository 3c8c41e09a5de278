"""A model with parts that the memory model does not know is refused before anything is estimated."""

import pytest

from meshfit.errors import InputError
from meshfit.predict.coverage import require_covered, why_not_covered
from meshfit.workload.models import catalogue, read_model

REFUSED = {"an encoder, whose tokens a workload does not count", "of unknown size"}


@pytest.mark.parametrize("name", sorted(catalogue()))
def test_every_decoder_of_the_catalogue_is_covered(name):
    model = read_model(name)
    reason = why_not_covered(model)
    needs_refusal = bool(model.encoder) or any(t.tensors is None for t in model.towers)
    assert (reason is not None) == needs_refusal, reason


def test_an_encoder_is_refused_with_the_reason():
    encoders = [name for name in catalogue() if read_model(name).encoder]
    assert encoders
    with pytest.raises(InputError, match=r"does not cover .*: it has an encoder"):
        require_covered(read_model(encoders[0]))
