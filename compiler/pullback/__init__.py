"""pullback: JAX programs as MLIR modules that keep their derivative rules."""

from typing import TYPE_CHECKING

from jax import closure_convert as closure_convert, custom_gradient as custom_gradient
from jax.custom_derivatives import linear_call as linear_call

from pullback._first_use import names as __dir__, tool as __getattr__  # noqa: F401
from pullback._jax.derivatives import NotNeeded as NotNeeded, NotSaveable as NotSaveable
from pullback.api.custom_rules import custom_jvp as custom_jvp, custom_vjp as custom_vjp
from pullback.api.jacobians import hessian as hessian, jacfwd as jacfwd, jacrev as jacrev
from pullback.api.taylor_mode import jet as jet
from pullback.api.transforms import (
    grad as grad,
    jit as jit,
    jvp as jvp,
    laplacian as laplacian,
    linear_transpose as linear_transpose,
    linearize as linearize,
    value_and_grad as value_and_grad,
    vjp as vjp,
    vmap as vmap,
)
from pullback.api.while_loop import bounded_while_loop as bounded_while_loop
from pullback.errors import (
    ArgumentMismatchError as ArgumentMismatchError,
    DerivativeTypeError as DerivativeTypeError,
    LateBindingWarning as LateBindingWarning,
    LeakedValueError as LeakedValueError,
    LostRulesWarning as LostRulesWarning,
    MemoryBudgetError as MemoryBudgetError,
    MissingRuleError as MissingRuleError,
    NotDifferentiableError as NotDifferentiableError,
    NotLinearError as NotLinearError,
    PullbackError as PullbackError,
    RuleResultError as RuleResultError,
    UnsupportedJaxVersion as UnsupportedJaxVersion,
    WrongRuleError as WrongRuleError,
)
from pullback.frontend.trace import trace as trace
from pullback.program.program import Program as Program
from pullback_runtime._version import __version__ as __version__

if TYPE_CHECKING:
    from pullback import testing as testing
    from pullback._tools import (
        ArtifactError as ArtifactError,
        NanOperand as NanOperand,
        NanPlace as NanPlace,
        NanReport as NanReport,
        NotPortableError as NotPortableError,
        find_nan as find_nan,
        from_exported as from_exported,
        load as load,
        save_all as save_all,
        sparse_hessian as sparse_hessian,
        sparse_jacobian as sparse_jacobian,
    )

__all__ = [
    "ArgumentMismatchError",
    "ArtifactError",
    "DerivativeTypeError",
    "LateBindingWarning",
    "LeakedValueError",
    "LostRulesWarning",
    "MemoryBudgetError",
    "MissingRuleError",
    "NanOperand",
    "NanPlace",
    "NanReport",
    "NotDifferentiableError",
    "NotLinearError",
    "NotNeeded",
    "NotPortableError",
    "NotSaveable",
    "Program",
    "PullbackError",
    "RuleResultError",
    "UnsupportedJaxVersion",
    "WrongRuleError",
    "__version__",
    "bounded_while_loop",
    "closure_convert",
    "custom_gradient",
    "custom_jvp",
    "custom_vjp",
    "find_nan",
    "from_exported",
    "grad",
    "hessian",
    "jacfwd",
    "jacrev",
    "jet",
    "jit",
    "jvp",
    "laplacian",
    "linear_call",
    "linear_transpose",
    "linearize",
    "load",
    "save_all",
    "sparse_hessian",
    "sparse_jacobian",
    "testing",
    "trace",
    "value_and_grad",
    "vjp",
    "vmap",
]
