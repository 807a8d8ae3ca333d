"""`python -m pullback`, where the console script is not on the path."""

from pullback_cli import main

main()
