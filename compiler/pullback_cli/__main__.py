"""`python -m pullback_cli`, where the console script is not on the path."""

from pullback_cli import main

main(prog_name="pullback")
