"""Programs in files: save, load, and exchange with `jax.export`."""

from pullback.files.jax_export.exchange import (
    from_exported as from_exported,
    to_exported as to_exported,
)
from pullback.files.read import load as load
from pullback.files.write import save as save, serialize as serialize
