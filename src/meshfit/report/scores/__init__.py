"""Scores of predictions against published measurements, for the terminal."""
