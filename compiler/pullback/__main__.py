"""`python -m pullback`, where the console script is not on the path."""

from pullback.tools.cli import main

main()
