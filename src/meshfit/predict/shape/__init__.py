"""What the ranks of a layout are: columns of its degrees, what its pipeline gives each, what divides tensors."""
