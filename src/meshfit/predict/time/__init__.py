"""What one step takes, by term: computation, what shows of communication, bubble, optimizer."""
