"""Megatron-LM's YAML files (``--yaml-cfg``)."""
