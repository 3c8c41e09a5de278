"""Driving real servers: requests sent as planned, whatever comes back, and what was measured."""
