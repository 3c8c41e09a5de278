"""Several hosts on one machine, so that placement can be tried without a cluster."""
