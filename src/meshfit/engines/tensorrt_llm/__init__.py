"""TensorRT-LLM."""
