"""What a rank holds at its fullest moment, by category and kind of engine."""
