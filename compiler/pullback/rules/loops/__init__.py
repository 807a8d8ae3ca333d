"""Derivative rules of `stablehlo.while`."""
