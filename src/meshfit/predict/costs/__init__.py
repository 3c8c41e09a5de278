"""What one matmul, one pass over memory and one collective cost on given hardware: tables, fits, formulas."""
