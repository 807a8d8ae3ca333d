"""Modules of MLIR: parsed, prepared to be called, and edited."""
