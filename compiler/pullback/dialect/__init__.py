"""Other names of modules in `pullback.ir`, which rules outside of this package use."""
