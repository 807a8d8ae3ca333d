"""Exchange with `jax.export`: programs to its form, and modules in its form to programs."""
