"""What collectives expose of a step, one module an axis: sizes and counts from
``predict.time.messages``, seconds from ``predict.costs.collectives``, and what computation hides of them
from the engine's profile."""
