"""Another name of `pullback_cli`: `python -m pullback.tools.cli` is the command `pullback`."""

from pullback_cli import main as main

if __name__ == "__main__":
    main(prog_name="pullback")
