"""What people see: documents, tables for the terminal, drawings, the HTML page."""
