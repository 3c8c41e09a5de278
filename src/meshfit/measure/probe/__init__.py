"""Measuring a cluster under torchrun: ``python -m meshfit.measure.probe REQUEST.json FOLDER``."""
