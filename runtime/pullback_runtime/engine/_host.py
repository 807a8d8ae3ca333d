"""Describe the processor, as far as machine code depends on it."""

from __future__ import annotations

import functools
import hashlib
import platform
from pathlib import Path

CPU_INFO = Path("/proc/cpuinfo")
FEATURES = "flags", "Features"


@functools.cache
def host_features() -> str:
    """Return the kind of processor and a digest of its features, such as AVX."""
    machine = f"{platform.system()} {platform.machine()}"
    if not CPU_INFO.is_file():
        return f"{machine} {platform.processor()}"
    for line in CPU_INFO.read_text().splitlines():
        name, _, text = line.partition(":")
        if name.strip() in FEATURES:
            features = " ".join(sorted(text.split()))
            return f"{machine} {hashlib.sha256(features.encode()).hexdigest()[:16]}"
    return machine
