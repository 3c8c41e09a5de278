"""One layout of a job: rules, whether it fits, what to change, its program on fake tensors."""
