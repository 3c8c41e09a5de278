"""Serving: what one replica holds, how long its steps take, which layouts meet given targets."""
