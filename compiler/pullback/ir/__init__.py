"""The derivative ops: views, builders, and the verifier. Specified in docs/dialect.md."""
