"""Solve a saved problem by SciPy, and by IPOPT where it is installed, without JAX.

    python examples/optimal_control/solve.py problem.mlirbc solution.npz [PLUGIN.so]

It needs `scipy` and `pullback-runtime`, for IPOPT `cyipopt-wheels`; with a PJRT plug-in, no JAX.
Nothing in it is about one problem: all comes from the entries of the file.
"""

from __future__ import annotations

import importlib.util
import sys

import numpy as np
from scipy.optimize import NonlinearConstraint, minimize
from scipy.sparse import coo_matrix

import pullback_runtime


class Problem:
    """The entries of a file, in the form in which cyipopt asks for them.

    IPOPT takes values of sparse derivatives, and where they are; of a Hessian the lower triangle.
    """

    def __init__(self, path, **options):
        names = "objective", "gradient", "constraints", "jacobian", "hessian", "bounds", "guess"
        self.entries = {name: pullback_runtime.load(path, entry=name, **options) for name in names}
        self.guess = np.asarray(self.entries["guess"]())
        self.bounds = [np.asarray(each) for each in self.entries["bounds"]()]
        pattern = self.entries["hessian"].pattern
        self.lower = pattern.rows >= pattern.cols

    def call(self, name, *args):
        return np.asarray(self.entries[name](*args))

    def matrix(self, name, *args):
        """A sparse derivative, for SciPy."""
        pattern = self.entries[name].pattern
        values = self.call(name, *args)
        return coo_matrix((values, (pattern.rows, pattern.cols)), pattern.shape).tocsr()

    def objective(self, x):
        return float(self.call("objective", x))

    def gradient(self, x):
        return self.call("gradient", x)

    def constraints(self, x):
        return self.call("constraints", x)

    def jacobian(self, x):
        return self.call("jacobian", x)

    def jacobianstructure(self):
        pattern = self.entries["jacobian"].pattern
        return pattern.rows, pattern.cols

    def hessian(self, x, multipliers, weight):
        return self.call("hessian", x, np.float64(weight), multipliers)[self.lower]

    def hessianstructure(self):
        pattern = self.entries["hessian"].pattern
        return pattern.rows[self.lower], pattern.cols[self.lower]


def solve_by_scipy(problem):
    """Return the unknowns and multipliers that `trust-constr` finds."""
    none = np.zeros_like(problem.bounds[0])
    constraint = NonlinearConstraint(
        problem.constraints,
        *problem.bounds,
        jac=lambda x: problem.matrix("jacobian", x),
        hess=lambda x, multipliers: problem.matrix("hessian", x, np.float64(0), multipliers),
    )
    found = minimize(
        problem.objective,
        problem.guess,
        jac=problem.gradient,
        hess=lambda x: problem.matrix("hessian", x, np.float64(1), none),
        constraints=constraint,
        method="trust-constr",
        options={"gtol": 1e-7, "xtol": 1e-10, "maxiter": 2000},
    )
    print(f"trust-constr: effort {found.fun:.6f} after {found.nit} iterations")
    return found.x, found.v[0]


def solve_by_ipopt(problem):
    """Return the unknowns and multipliers that IPOPT finds."""
    import cyipopt

    lower, upper = problem.bounds
    size = len(problem.guess)
    solver = cyipopt.Problem(size, len(lower), problem_obj=problem, cl=lower, cu=upper)
    solver.add_option("print_level", 0)
    solver.add_option("sb", "yes")
    solver.add_option("tol", 1e-9)
    unknowns, found = solver.solve(problem.guess)
    assert found["status"] == 0, found["status_msg"]
    print(f"IPOPT:        effort {found['obj_val']:.6f}")
    return unknowns, found["mult_g"]


def main(path, out, plugin=None):
    options = {"engine": "pjrt", "plugin": plugin} if plugin else {}
    problem = Problem(path, **options)
    for name in ("jacobian", "hessian"):
        print(f"{name}: {problem.entries[name].pattern}")
    unknowns, multipliers = solve_by_scipy(problem)
    if importlib.util.find_spec("cyipopt"):
        by_ipopt = solve_by_ipopt(problem)
        far = abs(unknowns - by_ipopt[0]).max()
        print(f"the trajectories are apart by {far:.0e}")
        assert far < 1e-3
        unknowns, multipliers = by_ipopt
    else:
        print("IPOPT is not here: pip install cyipopt-wheels")
    np.savez(
        out,
        unknowns=unknowns,
        multipliers=multipliers,
        jacobian=problem.matrix("jacobian", unknowns).toarray(),
        hessian=problem.matrix("hessian", unknowns, np.float64(1), multipliers).toarray(),
    )
    assert "jax" not in sys.modules or plugin is None


if __name__ == "__main__":
    main(*sys.argv[1:])
