"""What programs ask of the layers above them, which make programs themselves.

`pullback.files` names itself here when it is imported, as `import pullback` does.
"""

from __future__ import annotations

from typing import Any

_FILES: list[Any] = []


def set_files(files: Any) -> None:
    """Name the module that saves, exports and reads programs."""
    _FILES[:] = [files]


def files() -> Any:
    """Return the module with `save`, `to_exported` and `of_module`."""
    return _FILES[0]
