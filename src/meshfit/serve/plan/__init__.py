"""The layouts of a serving job side by side."""
