"""How context parallelism exchanges."""

import numpy as np
from numpy.typing import NDArray

from meshfit.mesh.candidates import CP_METHODS
from meshfit.predict.shape.columns import context_methods
from meshfit.predict.shape.group import LayoutGroup

BoolArray = NDArray[np.bool_]


def context_method(group: LayoutGroup) -> dict[str, BoolArray]:
    """Collective -> which layouts exchange by it; a hierarchical exchange by two."""
    columns = group.columns
    gathers = context_methods(group.candidates, group.profile) == CP_METHODS.index("all_gather")
    exchanges_keys = columns.key_ranks > 1
    return {
        "send_recv": exchanges_keys & ~gathers,
        "all_gather": exchanges_keys & gathers,
        "all_to_all": columns.head_ranks > 1,
    }
