"""What is asked of servers: requests, how they are shared out and drafted, the latencies they must see."""
