#!/bin/bash
export HF_HOME=/data/hf
torchrun --nnodes 8 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint "$HEAD:29500" \
    scripts/training/run_recipe.py --recipe llama31_70b_pretrain_config \
    model.tensor_model_parallel_size=8 \
    model.pipeline_model_parallel_size=2 \
    model.virtual_pipeline_model_parallel_size=null \
    model.context_parallel_size=1 \
    train.global_batch_size=256 \
    ++ddp.overlap_param_gather=true
