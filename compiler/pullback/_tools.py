"""The public names that a derivative does not need: imported when one of them is first used."""

from __future__ import annotations

from pullback import artifact as artifact, testing as testing, torch as torch
from pullback.api.sparse import (
    sparse_hessian as sparse_hessian,
    sparse_jacobian as sparse_jacobian,
)
from pullback.files import (
    from_exported as from_exported,
    load as load,
    save_all as save_all,
)
from pullback.files.errors import (
    ArtifactError as ArtifactError,
    NotPortableError as NotPortableError,
)
from pullback.nans.find_nan import find_nan as find_nan
from pullback.nans.report import (
    NanOperand as NanOperand,
    NanPlace as NanPlace,
    NanReport as NanReport,
)
