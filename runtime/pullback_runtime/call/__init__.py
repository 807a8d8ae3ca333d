"""Call modules: arguments and their trees, handles, JAX's primitive, and executables."""
