"""Tier 1: what a layout should need and take, in closed form over many layouts at once."""
