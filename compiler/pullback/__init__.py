"""pullback: JAX programs as MLIR modules that keep their derivative rules."""

from pullback._errors import MissingRuleError as MissingRuleError
from pullback._errors import PullbackError as PullbackError
from pullback._errors import UnsupportedJaxVersion as UnsupportedJaxVersion
from pullback._program import Program as Program
from pullback.frontend.trace import trace as trace
