#!/usr/bin/env bash
# Everything that only a GPU can tell, on one GPU in under 8 minutes; prints one JSON document.
#
#   benchmarks/gpu/check.sh > benchmarks/results/gpu-$(date +%F).json
#
# Needs meshfit with a CUDA build of PyTorch in the Python that PYTHON names (default: python).
set -euo pipefail
cd "$(dirname "$0")/../.."
exec timeout 480 "${PYTHON:-python}" benchmarks/gpu/check.py "$@"
