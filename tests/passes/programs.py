"""Programs that tests of several passes differentiate."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import lax

XS = np.linspace(0.5, 1.5, 4, dtype=np.float32)
WS = np.linspace(-1, 1, 16, dtype=np.float32).reshape(4, 4)


def nested(ws, x):
    def inner(c, w):
        return lax.cond(jnp.sum(c) > 1, lambda: jnp.sin(c * w), lambda: c + jnp.prod(w)), None

    def outer(c, w):
        return lax.scan(inner, c * w, ws)[0], None

    return jnp.sum(lax.scan(outer, x, ws)[0])
