"""Tier 2: one optimizer step as a timeline of every pipeline rank."""
