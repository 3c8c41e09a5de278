"""Sweeps that nobody needs who wants a layout: what predictions and shortlists are judged by.

Imports are relative: scripts find this package as ``sweeps``, tests as ``tools.sweeps``.
"""
