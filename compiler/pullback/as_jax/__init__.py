"""Programs as plain functions of JAX: `program.as_jax()`.

A module is evaluated op by op with the functions of `jax.lax`, so that what JAX traces has JAX's
own primitives, and each interpreter of jaxprs reads it. `table` has a function for each op, which
the files of its families register. `evaluate` walks through blocks. `derivative_ops` makes of our
ops functions with a `jax.custom_jvp` rule, and linear maps with transposes of their own.
"""
