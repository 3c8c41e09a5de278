docker run --gpus all --shm-size 32g -p 30000:30000 lmsysorg/sglang:v0.5.23 \
  python3 -m sglang.launch_server --model Qwen/Qwen3-235B-A22B \
    --tp-size 8 --attn-dp-size 3 --moe-dp-size 2 --ep-size 8 --context-length 32768 \
    --mem-fraction-statc 0.85
