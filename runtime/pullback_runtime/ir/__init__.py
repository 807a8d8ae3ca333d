"""Parse modules of MLIR, prepare them to be called, and edit them."""
