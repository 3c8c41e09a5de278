"""Predicted latencies of servers against measured ones."""
