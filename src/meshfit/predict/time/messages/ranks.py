"""All that one pipeline rank sends in a step."""

from meshfit.predict.shape.group import LayoutGroup
from meshfit.predict.shape.schedule import RankShape
from meshfit.predict.time.messages.context import context_messages
from meshfit.predict.time.messages.experts import expert_messages
from meshfit.predict.time.messages.latent import latent_messages
from meshfit.predict.time.messages.message import Message
from meshfit.predict.time.messages.pipeline import pipeline_messages
from meshfit.predict.time.messages.replicas import replication_messages
from meshfit.predict.time.messages.sharding import sharding_messages
from meshfit.predict.time.messages.tensor import tensor_messages


def rank_messages(shape: RankShape, group: LayoutGroup) -> tuple[Message, ...]:
    """Every message of one pipeline rank."""
    return (
        *tensor_messages(shape, group),
        *latent_messages(shape, group),
        *context_messages(shape, group),
        *expert_messages(shape, group),
        *pipeline_messages(shape, group),
        *sharding_messages(shape, group),
        *replication_messages(shape, group),
    )
