"""Derivative rules of calls: traced when asked for, lowered and linked."""
