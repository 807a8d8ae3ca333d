"""What Python functions and their rules close over, and how it is passed on."""
