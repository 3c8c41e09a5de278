"""Tests that need an optional package skip without it, so a whole run has to have them all."""

from importlib.util import find_spec

import pytest


@pytest.mark.parametrize("name", ["torch", "transformers", "safetensors", "matplotlib"])
def test_packages_that_tests_need_are_installed(name):
    assert find_spec(name) is not None, f'pip install -c constraints.txt -e ".[run,dev]" ({name})'
