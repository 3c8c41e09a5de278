"""A causal language model as the runner has it: stages of Hugging Face's modules, weights, loss."""
