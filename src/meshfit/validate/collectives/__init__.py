"""Predicted times of collectives against published measurements of nccl-tests."""
