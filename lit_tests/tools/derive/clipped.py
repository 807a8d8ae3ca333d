# RUN: pullback derive %s:loss --grad | filecheck %s

# The cotangent of the cube is clipped, then multiplied: nothing of the rule is lost.
# CHECK-LABEL: func.func public @main
# CHECK: %[[CT:.*]] = call @clip
# CHECK-NEXT: %[[GRADIENT:.*]] = stablehlo.multiply %[[CT]], %arg1
# CHECK-NEXT: return %[[GRADIENT]]

import jax
import jax.numpy as jnp


@jax.custom_vjp
def clipped(x):
    return x


clipped.defvjp(lambda x: (x, None), lambda _, ct: (jnp.clip(ct, -1.0, 1.0),))


def loss(w, x):
    return jnp.sum(clipped(w * x) ** 3)


example_args = (jnp.ones(2), jnp.ones(2))
