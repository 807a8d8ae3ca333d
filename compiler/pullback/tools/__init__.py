"""The command line: `pullback` and its subcommands, and `pullback-opt`."""
