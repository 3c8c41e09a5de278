#!/bin/bash
#SBATCH --nodes=1
set -euo pipefail

export VLLM_LOGGING_LEVEL=INFO
MODEL=${MODEL:-meta-llama/Llama-3.1-70B-Instruct}
TP=4

pip install --quiet "vllm==0.32.0"
nvidia-smi --query-gpu=name --format=csv

vllm serve "$MODEL" \
    --served-model-name llama \
    --tensor-parallel-size $TP \
    -dp 2 \
    --max_model_len 32k \
    --gpu-memory-util 0.90 \
    --max-num-seqs 256 \
    --kv-cache-dtype fp8 \
    --enable-prefix-caching \
    --compilation-config '{"mode": 3}' \
    -O2 \
    --port 8000 > serve.log 2>&1
