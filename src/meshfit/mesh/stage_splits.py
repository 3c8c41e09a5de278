"""Ways of spreading layers over stages that are worth a look, beside as evenly as can be."""

from dataclasses import dataclass

import numpy as np

from meshfit.mesh.candidates import IntArray
from meshfit.mesh.spec import balanced_stages, even_stages
from meshfit.profile import EngineProfile
from meshfit.workload.counts import embedding_parameters, layer_parameters
from meshfit.workload.model import ModelSpec

TAKES_SPLITS = "stage_layers_cover_model"
"""The rule by which an engine takes the layers of every stage."""

TAKES_BARE_ENDS = "stages_within_layers_and_ends"
"""The rule by which the first stage may hold the embedding alone, and the last the head."""


@dataclass(frozen=True, kw_only=True)
class StageSplits:
    """Alternatives by number of stages.

    Attributes:
        splits: all of them; the first is None, "as even as can be".
        counts: [stages], how many there are for so many stages; 1 means that alone.
        indices: [stages, alternatives], which of ``splits``.
    """

    splits: tuple[tuple[int, ...] | None, ...]
    counts: IntArray
    indices: IntArray

    def of(self, num_stages: IntArray) -> IntArray:
        """The row of ``counts`` and ``indices`` for numbers of stages; beyond the last, the first."""
        return np.where(num_stages < len(self.counts), num_stages, 0)


def stage_splits(model: ModelSpec, profile: EngineProfile) -> StageSplits:
    """Lighter ends for every number of stages up to the layers.

    One layer less on the first and last stage, for which embedding and head count as a layer each;
    and, where the head's matrix has the parameters of several layers, as many less on the last
    stage. An engine that splits undivided layers itself gets no split that it makes anyway. Where it
    takes them, splits leave the embedding and the head alone on their stages.
    """
    layers = model.num_hidden_layers
    bare_ends = TAKES_BARE_ENDS in profile.rules
    most = layers + 2 if bare_ends else layers
    splits: list[tuple[int, ...] | None] = [None]
    indices = np.zeros((most + 1, 3), dtype=np.int64)
    counts = np.ones(most + 1, dtype=np.int64)
    if TAKES_SPLITS not in profile.rules:
        return StageSplits(splits=(None,), counts=counts, indices=indices)
    refuses_uneven = "layers_divisible_by_stages" in profile.rules
    heads = dict.fromkeys((1, head_layers(model)))
    for stages in range(2, most + 1):
        implied = None if refuses_uneven and layers % stages else even_stages(layers, stages)
        found = (
            balanced_stages(layers, stages, embedding=1, head=head, bare_ends=bare_ends)
            for head in heads
        )
        for split in dict.fromkeys(one for one in found if one not in (None, implied)):
            indices[stages, counts[stages]] = len(splits)
            counts[stages] += 1
            splits.append(split)
    return StageSplits(splits=tuple(splits), counts=counts, indices=indices)


def head_layers(model: ModelSpec) -> int:
    """Layers that have as many parameters as the output matrix, at least 1: what it counts as."""
    per_layer = layer_parameters(model, model.layers[-1]).total
    return max(1, round(embedding_parameters(model) / per_layer)) if per_layer else 1
