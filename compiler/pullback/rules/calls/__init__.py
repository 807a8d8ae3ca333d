"""Rules of calls: of functions, and of the three derivative ops."""
