"""pullback: JAX programs as MLIR modules that keep their derivative rules."""
