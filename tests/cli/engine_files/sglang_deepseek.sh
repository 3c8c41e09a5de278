python3 -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3 --tp 16 --dp-size 8 \
  --enable-dp-attention --ep 16 --nnodes 2 --node-rank 0 --dist-init-addr 10.0.0.1:5000 \
  --trust-remote-code --mem-fraction-static 0.88 --chunked-prefill-size 16384
