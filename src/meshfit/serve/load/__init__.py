"""What traffic does to replicas, in closed form: requests in flight, latencies, throughput."""
