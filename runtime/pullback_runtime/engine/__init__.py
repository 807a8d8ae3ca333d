"""Compile a file as it is, and run it: by XLA, through JAX or a PJRT plug-in, or by IREE."""
