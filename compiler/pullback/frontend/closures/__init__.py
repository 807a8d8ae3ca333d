"""Closure conversion: what Python functions and their rules close over becomes operands."""
