"""What a matmul, a pass over memory and a collective cost on given hardware."""
