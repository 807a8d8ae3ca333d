"""Forward mode, reverse mode and batching of MLIR functions, and what a rule is."""
