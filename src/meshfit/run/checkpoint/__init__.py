"""Checkpoints: saved by each rank in shards under one layout, loaded under any other."""
