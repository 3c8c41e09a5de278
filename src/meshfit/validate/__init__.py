"""Predictions held against tables of published measurements (``meshfit validate``)."""
