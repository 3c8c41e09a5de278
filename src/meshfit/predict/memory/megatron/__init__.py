"""Memory of Megatron-Core, tensor by tensor, in closed form over many layouts at once."""
