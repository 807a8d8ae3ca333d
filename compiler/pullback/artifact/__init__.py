"""Programs in files: save, load, and exchange with `jax.export`."""

from pullback.artifact.exported import from_exported as from_exported, to_exported as to_exported
from pullback.artifact.read import load as load
from pullback.artifact.write import save as save, serialize as serialize
