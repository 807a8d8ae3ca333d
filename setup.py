"""Take the version of the runtime beside this file, and depend on the runtime.

In a checkout the dependency is that folder: `pip install .` installs both distributions, without an
index. In an sdist, which PKG-INFO marks, and so in the wheel of a release, it is the runtime's name
and version: a wheel has no path of the machine that built it.
"""

import re
import tomllib
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent.resolve()
RUNTIME = ROOT / "runtime"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
VERSION = re.search('"(.+)"$', (RUNTIME / "pullback_runtime/_version.py").read_text().strip())[1]

is_release = (ROOT / "PKG-INFO").is_file()
runtime = f"=={VERSION}" if is_release else f" @ {RUNTIME.as_uri()}"
others = PROJECT["tool"]["pullback"]["dependencies"]
setup(version=VERSION, install_requires=[f"pullback-runtime{runtime}", *others])
