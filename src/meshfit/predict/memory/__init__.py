"""What a rank holds at its fullest moment, by category: PyTorch's own wrappers, Megatron-Core, DeepSpeed."""
