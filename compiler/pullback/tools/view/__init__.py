"""`pullback view`: a program as one HTML page."""
