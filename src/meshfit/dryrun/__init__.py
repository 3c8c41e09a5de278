"""Tier 3: the runner's own program of one rank, on fake tensors and a fake process group."""
