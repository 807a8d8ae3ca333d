"""pullback: JAX programs as MLIR modules that keep their derivative rules."""

from jax import closure_convert as closure_convert
from jax import custom_gradient as custom_gradient
from jax.custom_derivatives import linear_call as linear_call

from pullback._api import grad as grad
from pullback._api import jit as jit
from pullback._api import jvp as jvp
from pullback._api import linear_transpose as linear_transpose
from pullback._api import linearize as linearize
from pullback._api import value_and_grad as value_and_grad
from pullback._api import vjp as vjp
from pullback._api import vmap as vmap
from pullback._closures import custom_jvp as custom_jvp
from pullback._closures import custom_vjp as custom_vjp
from pullback._errors import ArgumentMismatchError as ArgumentMismatchError
from pullback._errors import DerivativeTypeError as DerivativeTypeError
from pullback._errors import MissingRuleError as MissingRuleError
from pullback._errors import NotDifferentiableError as NotDifferentiableError
from pullback._errors import NotLinearError as NotLinearError
from pullback._errors import PullbackError as PullbackError
from pullback._errors import RuleResultError as RuleResultError
from pullback._errors import UnsupportedJaxVersion as UnsupportedJaxVersion
from pullback._jacobians import hessian as hessian
from pullback._jacobians import jacfwd as jacfwd
from pullback._jacobians import jacrev as jacrev
from pullback._loops import bounded_while_loop as bounded_while_loop
from pullback._program import Program as Program
from pullback.artifact import from_exported as from_exported
from pullback.artifact import load as load
from pullback.artifact.errors import ArtifactError as ArtifactError
from pullback.artifact.errors import NotPortableError as NotPortableError
from pullback.frontend.trace import trace as trace
