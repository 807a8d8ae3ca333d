"""Programs in files: save, load, and exchange with `jax.export`."""

from pullback.files.jax_export.exchange import (
    from_exported as from_exported,
    to_exported as to_exported,
)
from pullback.files.read import load as load, of_module as of_module
from pullback.files.write import save as save, save_all as save_all, serialize as serialize
