"""What compiles a file as it is, and runs it: XLA through JAX or a PJRT plug-in, and IREE."""
