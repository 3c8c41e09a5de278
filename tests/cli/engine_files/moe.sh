# A mixture of experts on one line of arguments, with a bracketed layer pattern.
export CUDA_DEVICE_MAX_CONNECTIONS=1
WORLD=64
ARGS="
    --num-layers 28 --hidden-size 2048 --ffn-hidden-size 10944 --num-attention-heads 16
    --num-experts 64 --moe-router-topk 6 --moe-ffn-hidden-size 1408
    --moe-shared-expert-intermediate-size 2816 --moe-layer-freq '([0]*1+[1]*27)'
    --moe-grouped-gemm --swiglu --normalization RMSNorm --disable-bias-linear
    --untie-embeddings-and-output-weights --position-embedding-type rope
    --vocab-size 102400 --seq-length 4096 --max-position-embeddings 4096
    --attention-dropout 0 --hidden-dropout 0 --bf16
"
torchrun --nproc-per-node=8 --nnodes=$((WORLD / 8)) pretrain_gpt.py $ARGS \
    --tensor-model-parallel-size 2 --sequence-parallel \
    --pipeline-model-parallel-size 2 \
    --expert-model-parallel-size 8 --expert-tensor-parallel-size 1 \
    --use-distributed-optimizer --overlap-grad-reduce \
    --micro-batch-size 1 --global-batch-size 256
