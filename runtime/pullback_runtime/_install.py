"""Say how to install pullback, and where from while its names are not on PyPI."""

SOURCE: str | None = "https://github.com/pullback-mlir/pullback"
"""The repository that `pip` installs both distributions from; None once PyPI has their names."""


def requirement(name: str, extra: str = "") -> str:
    """Return what `pip install` takes for a distribution of pullback, quoted for a shell."""
    named = f"{name}[{extra}]" if extra else name
    if SOURCE is not None:
        folder = "#subdirectory=runtime" if name == "pullback-runtime" else ""
        named = f"{named} @ git+{SOURCE}{folder}"
    return f'"{named}"'
