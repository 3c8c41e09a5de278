"""Megatron-LM on Megatron-Core."""
