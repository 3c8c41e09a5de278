"""Tensor parallelism: which modules are cut, how, and over which ranks."""
