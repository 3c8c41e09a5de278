"""A model with parts that the memory model does not know is refused before anything is estimated."""

from dataclasses import replace

import pytest

from meshfit.errors import InputError
from meshfit.predict.coverage import require_covered, why_not_covered
from meshfit.workload.models import catalogue, read_model
from tests.predict.builders import llama


@pytest.mark.parametrize("name", sorted(catalogue()))
def test_every_decoder_of_the_catalogue_is_covered(name):
    model = read_model(name)
    reason = why_not_covered(model)
    needs_refusal = bool(model.encoder) or any(t.tensors is None for t in model.towers)
    assert (reason is not None) == needs_refusal, reason


def test_an_encoder_is_refused_with_the_reason():
    model = replace(llama(), encoder=llama().layers)
    with pytest.raises(InputError, match="does not cover test: it has an encoder"):
        require_covered(model)
