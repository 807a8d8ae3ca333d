"""Rules of `stablehlo.while`."""
