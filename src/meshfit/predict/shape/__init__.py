"""What the ranks of a layout are: their degrees, what the pipeline gives each, what divides tensors."""
