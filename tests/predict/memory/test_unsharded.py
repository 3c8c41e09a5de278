"""What an FSDP unit takes when it is gathered: parameter by parameter, or as one flat parameter."""

from dataclasses import replace

import pytest

from meshfit.engines.native.profile import NATIVE
from meshfit.predict.memory.unsharded import unit_of
from meshfit.predict.shape.held import Held, rank_held
from meshfit.workload.training import PRECISIONS, AdapterSpec
from tests.predict.builders import group, llama_8b, training

FLAT = replace(NATIVE, flat_parameters=True)
SHARDED = {"dp_shard": 8, "zero_stage": 3}
LORA = AdapterSpec(rank=8)


def unit(profile, *, precision="bf16", adapter=None):
    spec = training(precision=PRECISIONS[precision], adapter=adapter)
    of = group(llama_8b(), spec, SHARDED, profile=profile)
    held = rank_held(of.pipeline.ranks[0], of.model, adapter)
    return unit_of(held, of), held


def elements(held: Held, part: str = "all") -> float:
    return getattr(held, part).total


def test_a_flat_parameters_gradient_spans_frozen_weights():
    flat, held = unit(FLAT, adapter=LORA)
    each, _ = unit(NATIVE, adapter=LORA)
    assert flat.kept == pytest.approx(2 * elements(held))
    assert each.kept == pytest.approx(2 * elements(held, "trained"))
    assert each.kept < flat.kept / 100


def test_it_waits_in_the_compute_type():
    flat, held = unit(FLAT, precision="bf16_mixed")
    each, _ = unit(NATIVE, precision="bf16_mixed")
    assert flat.kept == flat.made == pytest.approx(2 * elements(held))
    assert each.kept == pytest.approx(4 * elements(held))


def test_it_is_summed_without_a_copy_where_types_agree():
    assert unit(FLAT)[0].reduced == 0
    assert unit(NATIVE)[0].reduced == unit(NATIVE)[0].made
    mixed, held = unit(FLAT, precision="bf16_mixed")
    assert mixed.reduced == pytest.approx(4 * elements(held))


def test_what_is_gathered_is_the_same():
    assert unit(FLAT)[0].used == unit(NATIVE)[0].used
