"""Servers, as documents and for the terminal: plans, simulations, benchmarks, fits, files."""
