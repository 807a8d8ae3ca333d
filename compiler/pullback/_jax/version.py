"""Check the version of JAX, before anything else of it is looked at: private names may be gone."""

from __future__ import annotations

import os
import warnings

import jax

from pullback.errors import UnsupportedJaxVersion

OLDEST_JAX = (0, 10, 2)
NEXT_UNTRIED_JAX = (0, 13)

TRY = "PULLBACK_UNTRIED_JAX"
"""The environment variable that lets pullback be imported with a newer JAX than was tried."""


def check_version(version: str = jax.__version__) -> None:
    """Raise UnsupportedJaxVersion if JAX is outside the range of versions that the tests run on.

    A newer one is a warning where `PULLBACK_UNTRIED_JAX=1`.
    """
    numbers = tuple(int(part) for part in version.split(".")[:3] if part.isdigit())
    if OLDEST_JAX <= numbers < NEXT_UNTRIED_JAX:
        return
    words = f"pullback works with jax 0.10.2 to 0.12.x, and this is jax {version}"
    is_newer = numbers >= NEXT_UNTRIED_JAX
    if is_newer and os.environ.get(TRY) == "1":
        text = f"{words}, which nobody has tried: compare derivatives with JAX's, report what fails"
        warnings.warn(text, stacklevel=2)
        return
    more = f"; to try this one, set {TRY}=1" if is_newer else ""
    raise UnsupportedJaxVersion(words, do=f"pip install 'jax>=0.10.2,<0.13'{more}")


check_version()
