"""Hypothesis strategies that several tests of layouts share."""

from hypothesis import strategies as st

from meshfit.mesh.spec import LayoutSpec

layouts = st.builds(
    LayoutSpec,
    dp_replicate=st.integers(1, 4),
    dp_shard=st.integers(1, 4),
    tp=st.integers(1, 6),
    sp=st.booleans(),
    cp=st.integers(1, 2),
    cp_method=st.sampled_from([None, "ring", "all_gather", "all_to_all"]),
    pp=st.integers(1, 4),
    vpp=st.integers(1, 3),
    schedule=st.sampled_from(["gpipe", "1f1b", "interleaved_1f1b"]),
    stage_layers=st.none() | st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple),
    ep=st.integers(1, 2),
    zero_stage=st.integers(0, 3),
    micro_batch_size=st.integers(1, 4),
    recompute=st.sampled_from(["none", "full"]),
)
"""Layouts of small degrees, legal or not."""
