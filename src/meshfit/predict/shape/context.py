"""How context parallelism exchanges."""

import numpy as np
from numpy.typing import NDArray

from meshfit.mesh.candidates import CP_METHODS
from meshfit.predict.shape.group import LayoutGroup

BoolArray = NDArray[np.bool_]


def context_method(group: LayoutGroup) -> dict[str, BoolArray]:
    """Collective -> which layouts exchange by it: as the engine does where a layout does not say, a
    ring of sends where neither does."""
    asked, default = group.candidates.cp_method, group.profile.cp_method
    own = CP_METHODS.index(default) if default in CP_METHODS else CP_METHODS.index("ring")
    method = np.where(asked == CP_METHODS.index(None), own, asked)
    exchanges = method == CP_METHODS.index("all_to_all")
    gathers = method == CP_METHODS.index("all_gather")
    return {
        "send_recv": ~(exchanges | gathers),
        "all_gather": gathers,
        "all_to_all": exchanges,
    }
