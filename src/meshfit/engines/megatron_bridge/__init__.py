"""Megatron-Bridge: recipes, and what a file sets otherwise."""
