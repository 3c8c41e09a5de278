"""Topologies from what tools print: one module a format, ``merge`` for what they say together."""
