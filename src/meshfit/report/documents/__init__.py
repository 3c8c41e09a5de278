"""The documents that tables and the page show: what ``plan --json``, ``fit --json`` and others print.

They are plain dictionaries, so that a saved document renders as well as a fresh one. Sizes are in
bytes, times in seconds, fractions 0 to 1. What could not be had is None or left out, and
``absent`` says why. Keys only ever get added.

Builders arrange what ``predict`` and ``compare`` have found; tables and page only show it.
"""

SCHEMA_VERSION = 1
"""Of the documents of ``plan`` and ``fit``."""
