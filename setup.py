"""Depend on the runtime beside this file, which is a distribution of its own.

So `pip install .` installs both, without an index, and neither has files of the other. In an sdist
or a release, which have no such folder, the dependency is the runtime's name and version.
"""

import tomllib
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent.resolve()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
RUNTIME = ROOT / "runtime"
VERSION = PROJECT["project"]["version"]

beside = (RUNTIME / "pyproject.toml").is_file()
runtime = f" @ {RUNTIME.as_uri()}" if beside else f"=={VERSION}"
others = PROJECT["tool"]["pullback"]["dependencies"]
setup(install_requires=[f"pullback-runtime{runtime}", *others])
