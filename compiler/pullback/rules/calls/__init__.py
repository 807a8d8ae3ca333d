"""Derivative rules of calls: func.call and the three derivative ops."""
