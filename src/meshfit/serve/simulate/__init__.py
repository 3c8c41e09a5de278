"""Requests through replicas, step by step: what latencies a deployment shows under traffic."""
