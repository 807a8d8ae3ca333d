"""The transformations with JAX's signatures, and `Program` with its methods."""
