"""Optimizers over the parameters of one rank."""
