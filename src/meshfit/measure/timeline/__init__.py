"""One profiled step of every rank: what ran when, and what of it nothing hid."""
