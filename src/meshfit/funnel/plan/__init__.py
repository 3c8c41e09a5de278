"""What ``plan`` says of a ranked space."""
