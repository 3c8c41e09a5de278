"""Documents that share a sequence."""

import pytest

from meshfit.errors import InputError
from meshfit.mesh.spec import make_layout


def test_positions_begin_again_after_each_end() -> None:
    import torch

    from meshfit.run.model.positions import positions_in_documents

    tokens = torch.tensor([[5, 6, 0, 7, 0, 0, 8, 9], [0, 1, 1, 1, 1, 1, 1, 0]])
    assert positions_in_documents(tokens, end_token=0).tolist() == [
        [0, 1, 2, 0, 1, 0, 0, 1],
        [0, 0, 1, 2, 3, 4, 5, 6],
    ]


@pytest.mark.parametrize("keys", [{"pp": 2}, {"cp": 2}])
def test_ranks_that_do_not_see_where_documents_end_are_refused(keys: dict) -> None:
    from meshfit.run.model.documents import separate_documents

    with pytest.raises(
        InputError, match=r"packed documents (run with pp=1|do not go round a ring)"
    ):
        separate_documents((), make_layout(keys), 0)
