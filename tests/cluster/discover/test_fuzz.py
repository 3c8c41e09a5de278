"""Whatever is fed in: a document or one message, and never a count that the whole does not have."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshfit.cluster.discover.conclude import conclude
from meshfit.cluster.discover.document import discovery_document
from meshfit.cluster.discover.formats import readings_of
from meshfit.cluster.discover.merge import merge
from meshfit.cluster.discover.text import source_of
from meshfit.errors import InputError
from tests.cluster.discover import outputs

WHOLE = {
    "topo": outputs.topo_matrix(
        [*outputs.gpus(8), "NIC0", "NIC1"],
        lambda i, j: "NV18" if max(i, j) < 8 else "SYS",
        trailing=outputs.affinities(8),
        legend={"NIC0": "mlx5_0", "NIC1": "mlx5_1"},
    ),
    "spaces": outputs.with_spaces(
        outputs.topo_matrix(outputs.gpus(4), outputs.sockets(4), trailing=outputs.affinities(4))
    ),
    "p2p": outputs.p2p(4, "OK"),
    "rocm": outputs.rocm_topo(4),
    "amd": outputs.amd_smi_topology(["0000:0c:00.0", "0000:22:00.0", "0000:38:00.0"]),
    "nccl": outputs.nccl_xml(links=18),
    "hwloc": outputs.hwloc_xml(2, gpus_per_node=2),
    "q": outputs.nvidia_q(2),
}
OPEN_ENDED = {
    "nvlink": outputs.nvlink_status(["NVIDIA A100-SXM4-80GB"] * 2, ["25 GB/s"] * 12),
    "kubernetes": outputs.kubernetes_nodes(4, per_domain=2),
    "slurm": "SwitchName=a Nodes=n[0-3]\nSwitchName=b Nodes=n[4-7]\nSwitchName=t Switches=a,b\n",
    "ib": outputs.ibnetdiscover(leaves=2, hosts=4, uplinks=2),
    "query": "index, name, memory.total [MiB]\n0, NVIDIA L40S, 46068 MiB\n1, NVIDIA L40S, 46068 MiB\n",
}
"""A cut at the end of an entry leaves a whole one of fewer: no format says how many there are."""


def document(text):
    return discovery_document(conclude(merge(readings_of(source_of("text", text)))))


def counts(found):
    return found["accelerators"], found["nics"] and len(found["nics"])


@pytest.mark.parametrize("name", WHOLE)
def test_cut_anywhere_it_is_refused_or_says_the_same_number_of_gpus(name):
    text = WHOLE[name]
    whole = document(text)["accelerators"]
    for end in range(0, len(text), 3):
        try:
            found = document(text[:end])
        except InputError:
            continue
        assert found["accelerators"] in (whole, None)


@pytest.mark.parametrize("name", [*WHOLE, *OPEN_ENDED])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_lost_line_is_refused_or_changes_no_count(name, data):
    lines = (WHOLE | OPEN_ENDED)[name].splitlines(keepends=True)
    gone = data.draw(st.integers(0, len(lines) - 1))
    try:
        found = document("".join(lines[:gone] + lines[gone + 1 :]))
    except InputError:
        return
    if name not in ("nccl", "hwloc", *OPEN_ENDED):  # there a line may be a whole device
        assert found["accelerators"] in (document(WHOLE[name])["accelerators"], None)


@pytest.mark.parametrize("name", ["topo", "spaces", "p2p", "rocm", "amd"])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_shuffled_lines_are_refused_or_change_no_count(name, data):
    lines = WHOLE[name].splitlines(keepends=True)
    try:
        found = document("".join(data.draw(st.permutations(lines))))
    except InputError:
        return
    assert counts(found) == counts(document(WHOLE[name]))


@pytest.mark.parametrize("name", [*WHOLE, *OPEN_ENDED])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_garbled_stretch_is_no_traceback(name, data):
    text = (WHOLE | OPEN_ENDED)[name]
    start = data.draw(st.integers(0, len(text)))
    length = data.draw(st.integers(0, 12))
    noise = data.draw(st.text(max_size=12))
    try:
        document(text[:start] + noise + text[start + length :])
    except InputError as error:
        assert str(error)


@settings(max_examples=200, deadline=None)
@given(
    st.text(max_size=300)
    | st.lists(
        st.sampled_from(
            [
                "GPU0",
                "GPU1",
                "X",
                "NV4",
                "SYS",
                "\t",
                "\n",
                "SwitchName=",
                "Nodes=",
                "{",
                "}",
                "- topology: ",
                "<system>",
                "GPU 0: a (UUID: b)\n",
                " Link 0: ",
                "Fabric\n",
                "index, name\n",
            ]
        )
    ).map("".join)
)
def test_anything_is_a_document_or_one_message(text):
    try:
        document(text)
    except InputError as error:
        assert str(error)
