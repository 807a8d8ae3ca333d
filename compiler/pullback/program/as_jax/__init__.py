"""Programs as plain functions of JAX: `program.as_jax()`.

A module is evaluated op by op with the functions of `jax.lax`, so that what JAX traces has JAX's
own primitives, and each interpreter of jaxprs reads it. `table` has a function for each op, which
the files of its families register. `evaluate` walks through blocks, and `derivative_ops` gives our
three ops to `jax.custom_jvp`, `jax.custom_vjp` and `linear_call`.
"""
