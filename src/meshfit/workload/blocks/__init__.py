"""The blocks that layers are made of: one module a kind.

A block is a frozen dataclass of sizes. It declares its parameters as tensors (``tensors``), what it
computes beside matmuls with them (``token_mixing_flops``), what it caches per token (``caches``)
and per sequence (``state_bytes``); ``workload.counts`` only ever adds these up. To add a kind of
block, write one module here with a subclass of ``Block`` and use it from a family.
"""
