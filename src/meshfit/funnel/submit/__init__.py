"""A sweep whose launches are done by jobs of a cluster's scheduler."""
