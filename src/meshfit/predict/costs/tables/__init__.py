"""What was measured of single operations, as small tables, and how they are read between points.

The figures come from aiconfigurator-core 0.12.0 (Apache-2.0, NVIDIA), reduced by
``tools/reduce_tables.py``: one accelerator a time, inference runtimes' kernels, forward layouts.
"""
