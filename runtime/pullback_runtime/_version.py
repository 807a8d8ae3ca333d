"""The version of both distributions, which the build reads here: looking it up takes 40 ms."""

__version__ = "0.2.0"
