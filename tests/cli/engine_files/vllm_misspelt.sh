vllm serve Qwen/Qwen3-8B --tensor-paralel-size 2 --max-model-len 16384 --eplb-config.num_redundant_expert 2
