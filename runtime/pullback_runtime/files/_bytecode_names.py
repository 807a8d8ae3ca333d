"""Choose which function of a file is `@main`, in its bytes: engines without MLIR run that one."""

from __future__ import annotations

from pullback_runtime.files._bytecode_constants import varint
from pullback_runtime.files._container import (
    SAVE_AGAIN,
    ArtifactError,
    Layout,
    Truncated,
    read_strings,
)

MAIN = "main"


def with_main(content: bytes, layout: Layout, name: str) -> bytes:
    """Exchange the names of `@main` and of another function; return the new bytes of the file.

    A file has each string once, and all references are to its number. So the two strings change
    places.

    Raises: ArtifactError when the file has no string of this name.
    """
    if name == MAIN:
        return content
    start, end = layout.strings
    try:
        strings = read_strings(content[start:end])
        places = [strings.index(each.encode() + b"\0") for each in (MAIN, name)]
    except (Truncated, ValueError) as error:
        raise ArtifactError(f"the file has no function @{name}", do=SAVE_AGAIN) from error
    first, second = places
    strings[first], strings[second] = strings[second], strings[first]
    sizes = (varint(len(each)) for each in reversed(strings))
    section = b"".join((varint(len(strings)), *sizes, *strings))
    if len(section) != end - start:
        raise ArtifactError("the file's strings are written in another form", do=SAVE_AGAIN)
    return content[:start] + section + content[end:]
