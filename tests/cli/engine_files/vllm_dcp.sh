CUDA_VISIBLE_DEVICES=0,1,2,3,4,5 python -m vllm.entrypoints.openai.api_server \
    --model meta-llama/Llama-3.1-70B-Instruct \
    --tensor-parallel-size 6 \
    --decode-context-parallel-size 4 \
    --max-model-len 200000 \
    --max-num-batched-tokens 128 --max-num-seqs 512
