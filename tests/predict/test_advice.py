from meshfit.engines.native.profile import NATIVE
from meshfit.mesh.candidates import Candidates
from meshfit.mesh.changes import single_changes
from meshfit.mesh.spec import make_layout
from meshfit.predict.advice import changes_that_fit
from meshfit.predict.basis import Basis
from meshfit.predict.calibration import formula_only
from meshfit.predict.estimate import estimate
from tests.predict.builders import BF16, cluster, llama_8b, training

SPEC = training(sequence_length=8192, global_batch_size=64, precision=BF16)


def changes(keys, **options):
    topology, layout = cluster(**options), make_layout(keys)
    every = single_changes(
        layout, num_ranks=topology.num_accelerators, num_hidden_layers=32, profile=NATIVE
    )
    return changes_that_fit(
        layout,
        every,
        Basis(
            model=llama_8b(),
            training=SPEC,
            topology=topology,
            profile=NATIVE,
            calibration=formula_only(topology, NATIVE.name),
        ),
        rules=NATIVE,
        headroom_fraction=0.1,
    )


def test_a_layout_whose_activations_are_too_large_fits_with_one_change():
    found = changes({"dp_shard": 8, "micro_batch_size": 2})
    assert "recompute=full" in [change.words for change in found]
    assert [change.slowdown for change in found] == sorted(change.slowdown for change in found)
    assert str(found[0]).startswith(f"fits with {found[0].words}: at most ")


def test_every_change_keeps_the_world_size_and_fits_as_predicted():
    topology = cluster()
    for keys in ({"dp_shard": 8, "micro_batch_size": 2}, {"dp_replicate": 4, "tp": 2}):
        for change in changes(keys):
            assert change.layout.world_size == 8
            one = Candidates.from_layouts([change.layout])
            memory = estimate(llama_8b(), SPEC, topology, one, NATIVE).memory_high_bytes[0]
            assert memory == change.memory_high_bytes
            assert memory <= 0.9 * topology.accelerator.memory_bytes


def test_nothing_is_advised_where_no_single_change_fits():
    assert changes({"dp_shard": 8, "micro_batch_size": 2}, memory_bytes=2**30) == ()


def high_bytes(keys):
    one = Candidates.from_layouts([make_layout(keys)])
    return float(estimate(llama_8b(), SPEC, cluster(), one, NATIVE).memory_high_bytes[0])


def test_a_pipeline_whose_first_stage_is_fullest_fits_with_layers_moved_off_it():
    keys = {"pp": 4, "dp_replicate": 2, "recompute": "full"}
    moved = keys | {"stage_layers": [7, 9, 9, 7]}
    assert high_bytes(moved) < high_bytes(keys)
    between = (high_bytes(keys) + high_bytes(moved)) / 2 / 0.9
    found = {change.words: change for change in changes(keys, memory_bytes=int(between))}
    words = "one layer less on the first and last stage, stage_layers=7:9:9:7"
    assert found[words].layout == make_layout(moved)
    assert str(found[words]).startswith("fits with one layer less on the first and last stage")
