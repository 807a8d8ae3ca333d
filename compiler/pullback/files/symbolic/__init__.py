"""Files of programs with symbolic dimensions."""
