"""A fit as one HTML page."""
