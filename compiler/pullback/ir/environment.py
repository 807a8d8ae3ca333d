"""The environment of a program: what it needs where it runs, and is known besides its rules."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import jax

from pullback.ir.warn import warn_of_lost_rules
from pullback_runtime.call import _meshes


@dataclass(frozen=True, eq=False)
class Environment:
    """The surroundings of a program.

    Attributes:
      platforms: what it is lowered for.
      host_callbacks: what its module calls back, by number. It is one sequence for all programs of
        a rule table, which adds to it as rules are lowered.
      keepalives: what has to live as long as the program; one sequence as well.
      only_debugs: of what callbacks do, all may be left out or come twice, as prints may.
      axes: names and sizes of the axes of the mesh; none for a program of one device.
      traced_mesh: the devices that it was traced for; a file does not say which.
      has_batching_rules: it has some of the user's, which only JAX's jaxprs know.
      lost_batching_rules: it had, and comes from a file, which cannot hold them.
      lost_after: `jax.export` may have left out rules before it came here, of derivatives beyond
        so many; None if it has not.
      lost_at: calls that had one of these, as far as locations tell.
      has_lost_checks: JAX has left out checks of `checkify`.
    """

    platforms: tuple[str, ...] = ("cpu",)
    host_callbacks: Any = field(default_factory=list)
    keepalives: Any = field(default_factory=list)
    only_debugs: bool = True
    axes: _meshes.Axes = ()
    traced_mesh: jax.sharding.Mesh | None = None
    has_batching_rules: bool = False
    lost_batching_rules: bool = False
    lost_after: int | None = None
    lost_at: tuple[str, ...] = ()
    has_lost_checks: bool = False

    @property
    def mesh(self) -> jax.sharding.Mesh | None:
        """The devices of this process that the program runs on, if it runs on several."""
        return self.traced_mesh or _meshes.here(self.axes, None)

    def on_mesh(self, mesh: Any) -> Environment:
        """Return the environment on the devices of a mesh, where it names devices."""
        if not isinstance(mesh, jax.sharding.Mesh) or mesh.size <= 1:
            return self
        return dataclasses.replace(self, axes=_meshes.axes_of_mesh(mesh), traced_mesh=mesh)

    def with_called(self, called: Environment, has_lost_checks: bool) -> Environment:
        """Return the environment of a program that calls one of another rule table.

        What that one calls back, and keeps alive, is added to the sequences of this one.
        """
        self.host_callbacks.extend(called.host_callbacks)
        self.keepalives.extend(called.keepalives)
        return dataclasses.replace(
            self.on_mesh(called.mesh),
            only_debugs=self.only_debugs and called.only_debugs,
            has_batching_rules=self.has_batching_rules or called.has_batching_rules,
            lost_after=least(self.lost_after, called.lost_after),
            lost_at=tuple(dict.fromkeys((*self.lost_at, *called.lost_at))),
            has_lost_checks=self.has_lost_checks or has_lost_checks,
        )

    def of_derivative(self) -> Environment:
        """Return the environment of a derivative; warn of rules that were lost."""
        if self.lost_after is None:
            return self
        if self.lost_after:
            return dataclasses.replace(self, lost_after=self.lost_after - 1)
        warn_of_lost_rules(self.lost_at)
        return self


def least(*numbers: int | None) -> int | None:
    """Return the least of the numbers that are given, if any is."""
    return min((n for n in numbers if n is not None), default=None)
