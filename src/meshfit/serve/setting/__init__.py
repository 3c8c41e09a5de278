"""How a server is set: its layout and which are legal, its budgets, the format of its weights."""
