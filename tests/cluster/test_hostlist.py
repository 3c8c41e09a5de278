import pytest

from meshfit.cluster.hostlist import expand_hosts
from meshfit.errors import InputError


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("node1", ("node1",)),
        ("a, b", ("a", "b")),
        ("node[01-03]", ("node01", "node02", "node03")),
        ("node[9-11]", ("node9", "node10", "node11")),
        ("n[1,3-4]", ("n1", "n3", "n4")),
        ("r[1-2]n[1-2]", ("r1n1", "r1n2", "r2n1", "r2n2")),
        ("n[1-2].local,m", ("n1.local", "n2.local", "m")),
    ],
)
def test_host_lists_expand_in_order(text, hosts):
    assert expand_hosts(text) == hosts


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a host list"),
        ("a,,b", "not a host list"),
        ("node[1-2", "not a host list"),
        ("node]1[", "not a host list"),
        ("node $(reboot)", "not a host list"),
        ("a;b", "not a host list"),
        ("node[]", "not a number or a range"),
        ("node[a-b]", "not a number or a range"),
        ("node[3-1]", "must rise"),
        ("node[1-99999999]", "at most a million"),
        ("node[1-2,1-999999]", "more than a million hosts"),
        ("r[1-2000]n[1-2000]", "more than a million hosts"),
        ("[1-2]" * 30, "more than a million hosts"),
        ("n[1-" + "9" * 5000 + "]", "is not a number or a range"),
        ("a,b,a", "a is named twice"),
    ],
)
def test_what_is_no_host_list_is_refused(text, message):
    with pytest.raises(InputError, match=message) as caught:
        expand_hosts(text)
    assert len(str(caught.value)) < 300
