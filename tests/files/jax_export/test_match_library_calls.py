"""Linear algebra in what `jax.export` writes has JAX's derivatives."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import pullback as pb
from pullback import artifact
from pullback.program import library_routines
from pullback_runtime import ModuleError
from tests.files.models import of_export
from tests.rounding import close

pytestmark = [pytest.mark.whole, pytest.mark.usefixtures("float64")]

_random = np.random.default_rng(0)
A = _random.standard_normal((3, 3))
B = _random.standard_normal((3, 2))
S = A @ A.T + 3 * np.eye(3)
Z = A + 1j * _random.standard_normal((3, 3))
H = Z @ Z.conj().T + 3 * np.eye(3)
TALL, S2 = _random.standard_normal((4, 2)), np.array([[2.0, 0.5], [0.5, 1.0]])
scipy = jax.scipy.linalg


def weighed(x):
    """A number that depends on all elements, and on the signs of few."""
    return jnp.sum(jnp.sin(jnp.abs(x)) * jnp.arange(1.0, 1.0 + x.size).reshape(x.shape))


CASES: dict[str, tuple[Callable[[Any], Any], np.ndarray]] = {
    "cholesky": (lambda x: weighed(jnp.linalg.cholesky(x)), S),
    "cholesky, upper": (lambda x: weighed(scipy.cholesky(x)), S),
    "cholesky, complex": (lambda x: weighed(jnp.linalg.cholesky(x)), H),
    "cholesky, batch": (lambda x: weighed(jnp.linalg.cholesky(jnp.stack([x, 2 * x]))), S),
    "solve": (lambda x: weighed(jnp.linalg.solve(x, B)), A),
    "inv": (lambda x: weighed(jnp.linalg.inv(x)), A),
    "slogdet": (lambda x: jnp.linalg.slogdet(x)[1], A),
    "lu": (lambda x: weighed(scipy.lu(x)[2]), A),
    "eigh": (lambda x: weighed(jnp.linalg.eigh(x)[1]) + weighed(jnp.linalg.eigh(x)[0]), S),
    "eigh, upper": (lambda x: weighed(jnp.linalg.eigh(x, UPLO="U")[0]), S),
    "eigh, complex": (lambda x: weighed(jnp.linalg.eigvalsh(x)), H),
    "svd": (lambda x: sum(map(weighed, jnp.linalg.svd(x, full_matrices=False))), A),
    "svd, values": (lambda x: weighed(jnp.linalg.svd(x, compute_uv=False)), TALL),
    "qr": (lambda x: sum(map(weighed, jnp.linalg.qr(x))), A),
    "qr, tall": (lambda x: sum(map(weighed, jnp.linalg.qr(x))), TALL),
    "qr, r": (lambda x: weighed(jnp.linalg.qr(x, mode="r")), TALL),
    "triangular": (lambda x: weighed(scipy.solve_triangular(x, B, lower=True)), A),
    "triangular, transposed": (lambda x: weighed(scipy.solve_triangular(x, B, trans=1)), A),
    "triangular, conjugated": (lambda x: weighed(scipy.solve_triangular(x, B, trans=2)), Z),
    "triangular, units": (lambda x: weighed(scipy.solve_triangular(x, B, unit_diagonal=True)), A),
    "triangular, right": (
        lambda x: weighed(lax.linalg.triangular_solve(x, B.T, left_side=False)),
        A,
    ),
    "tridiagonal": (
        lambda x: weighed(lax.linalg.tridiagonal_solve(x[0], 3 + x[1], x[2], jnp.asarray(B))),
        A,
    ),
    "density": (
        lambda x: jax.scipy.stats.multivariate_normal.logpdf(B[:, 0], B[:, 1], x),
        S,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_derivatives(name: str) -> None:
    f, x = CASES[name]
    program = of_export(f, x)
    np.testing.assert_allclose(program(x), f(x), rtol=1e-13)
    t = np.cos(x)
    gradient, tangent = jax.jit(jax.grad(f))(x), pushed(f)(x, t)
    for each in (program, pb.load(artifact.serialize(program))):
        np.testing.assert_allclose(pb.grad(each)(x), gradient, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(pb.jvp(each, (x,), (t,))[1], tangent, rtol=1e-9)
    ours, theirs = (pushed(each)(x, t) for each in (program.grad(), jax.grad(f)))
    np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-10)


def pushed(f: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    return jax.jit(lambda x, t: jax.jvp(f, (x,), (t,))[1])


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_single_precision(dtype: str) -> None:
    x = jnp.asarray(H if dtype == "complex64" else S, dtype)

    def f(x):
        return weighed(jnp.linalg.solve(x, jnp.linalg.cholesky(x))).astype("float32")

    np.testing.assert_allclose(pb.grad(of_export(f, x))(x), jax.grad(f)(x), rtol=2e-3, atol=2e-3)


def test_what_is_not_positive_is_not_a_number() -> None:
    f = CASES["cholesky"][0]
    assert np.isnan(of_export(f, -S)(-S))


def test_a_batch() -> None:
    f, x = CASES["solve"]
    batch = np.stack([x, 2 * x, x.T])
    found = of_export(f, x).grad().vmap(axis_size=3)(batch)
    np.testing.assert_allclose(found, jax.vmap(jax.grad(f))(batch), rtol=1e-9)


def test_calls_with_one_type_share_a_function() -> None:
    def f(x):
        return weighed(jnp.linalg.cholesky(x) + jnp.linalg.cholesky(2 * x))

    assert of_export(f, S).asm().count("lapack_dpotrf") == 1


LIBRARIES = {"cuda": {"cusolver", "cusparse"}, "rocm": {"hipsolver"}}
FOR_GPUS = (
    "cholesky, batch",
    "inv",
    "eigh",
    "eigh, complex",
    "svd",
    "svd, values",
    "qr, tall",
    "tridiagonal",
)


@pytest.mark.parametrize("platform", LIBRARIES)
@pytest.mark.parametrize("name", FOR_GPUS)
def test_exports_for_gpus_have_derivatives_by_the_same_libraries(name: str, platform: str) -> None:
    """They are run by `make gpu`."""
    if (name, platform) == ("tridiagonal", "rocm"):
        pytest.skip("JAX does not export it")
    f, x = CASES[name]
    program = of_export(f, x, platforms=[platform])
    gradient = program.grad()
    assert program.platforms == gradient.platforms == (platform,)
    for each in (program, gradient, gradient.jvp()):
        found = set(re.findall(r"@(lapack|cu[a-z]+|hip[a-z]+)_\w+_ffi", each.asm()))
        assert found
        assert found <= LIBRARIES[platform]


ON_TPUS = {
    "inv": "LuDecomposition",
    "lu": "LuDecomposition",
    "eigh": "Eigh",
    "eigh, upper": "Eigh",
    "qr, tall": "Qr",
    "qr, r": "Qr",
}
"""A call that JAX writes there of each."""


@pytest.mark.parametrize("name", ON_TPUS)
def test_exports_for_tpus_have_derivatives_by_the_same_calls(name: str) -> None:
    """As many of them as without a file, where the rules have never been lost."""
    f, x = CASES[name]
    x, call = x.astype("float32"), f"@{ON_TPUS[name]}("
    program = of_export(f, x, platforms=["tpu"])
    gradient = program.grad()
    assert program.platforms == gradient.platforms == ("tpu",)
    expected = pb.trace(f, platforms="tpu")(x).grad()
    assert gradient.asm().count(call) == expected.asm().count(call) > 0
    assert gradient.jvp().asm().count(call) > 0


def test_calls_of_tpus_give_what_jax_gives() -> None:
    lu, pivots, permutation = library_routines.ROUTINES["LuDecomposition"]({}, A).values()
    close(lu, scipy.lu_factor(A)[0], ops=6, scale=2.0)  # a multiple of each row above is taken off
    np.testing.assert_array_equal(pivots, scipy.lu_factor(A)[1])
    lower = np.tril(lu, -1) + np.eye(3)
    np.testing.assert_allclose(lower @ np.triu(lu), A[permutation], rtol=1e-12)


def test_an_export_for_several_platforms_has_derivatives() -> None:
    """The variant for TPUs has no call without one."""
    f, x = CASES["solve"]
    x = x.astype("float32")
    program = of_export(f, x, platforms=["cpu", "tpu"])
    np.testing.assert_allclose(program.grad()(x), jax.grad(f)(x), rtol=1e-3, atol=1e-4)


def test_what_has_no_derivative_on_tpus() -> None:
    """Eigenvalues that are not sorted: JAX's own, of a large matrix, are made of these."""
    f = lambda x: weighed(lax.linalg.eigh(x, sort_eigenvalues=False)[1])  # noqa: E731
    program = of_export(f, S.astype("float32"), platforms=["tpu"])
    with pytest.raises(pb.MissingRuleError, match=r"no derivative rule for .* @Eigh"):
        program.grad()


def test_a_call_of_a_tpu_says_where_it_runs() -> None:
    f, x = CASES["inv"]
    program = of_export(f, x.astype("float32"), platforms=["tpu"])
    with pytest.raises(ModuleError, match="is to run on cpu, which has no `LuDecomposition`"):
        program(x.astype("float32"))


def decomposed(routine: str, x: Any, **options: Any) -> tuple[Any, Any, Any, Any]:
    """The singular values, and the product of what such a routine gives."""
    found = library_routines.ROUTINES[routine](options, x)
    u, v = found[2], found[3]
    k = found[1].shape[-1]
    return found[1], u[..., :k] * found[1][..., None, :], u, v


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("x", [A, TALL, TALL.T, Z, np.stack([TALL, 2 * TALL])])
def test_singular_vectors_as_routines_for_gpus_give_them(x: np.ndarray, full: bool) -> None:
    """Those of Jacobi's method are columns, as many as rows where all are asked for."""
    s, us, u, v = decomposed("gesvdj", x, compute_uv=True, full_matrices=full)
    np.testing.assert_allclose(s, np.linalg.svd(x)[1], rtol=1e-12)
    (m, n), k = x.shape[-2:], min(x.shape[-2:])
    assert u.shape[-2:] == (m, m if full else k)
    assert v.shape[-2:] == (n, n if full else k)
    np.testing.assert_allclose(us @ np.swapaxes(v[..., :k], -1, -2).conj(), x, atol=1e-12)
    if not full:
        for transposed in (False, True):
            options = {"compute_uv": True, "full_matrices": full, "transposed": transposed}
            found = library_routines.ROUTINES["gesvd"](options, x)
            u, vh = (found[3], found[2]) if transposed else (found[2], found[3])
            np.testing.assert_allclose((u * found[1][..., None, :]) @ vh, x, atol=1e-12)


def u_by_jacobi(x: Any) -> Any:
    """All of it, without what JAX does about failures."""
    columns = [(1, 0), (0,), (1, 0), (1, 0), ()]
    types = [jax.ShapeDtypeStruct(n, "float64") for n in ((4, 2), (2,), (4, 4), (2, 2))]
    call = jax.ffi.ffi_call(
        "cusolver_gesvdj_ffi",
        [*types, jax.ShapeDtypeStruct((), "int32")],
        input_layouts=[(1, 0)],
        output_layouts=columns,
    )
    return call(x, compute_uv=True, full_matrices=True)[2]


def test_the_columns_of_u_that_have_derivatives_have_them() -> None:
    program = of_export(lambda x: weighed(u_by_jacobi(x)[:, :2]), TALL, platforms=["cuda"])
    assert "@cusolver_gesvdj_ffi" in program.grad().asm()


NONE_FOR_GPUS = {
    "all of U": (lambda x: jnp.linalg.svd(x)[0], TALL),
    "all of V": (lambda x: jnp.linalg.svd(x)[2], TALL.T),
    "more of U": (lambda x: u_by_jacobi(x)[:, :3], TALL),
    "another algorithm": (
        lambda x: lax.linalg.eigh(x, implementation=lax.linalg.EighImplementation.JACOBI)[0],
        S,
    ),
}


@pytest.mark.parametrize("name", NONE_FOR_GPUS)
def test_what_has_no_derivative_on_gpus(name: str) -> None:
    f, x = NONE_FOR_GPUS[name]
    program = of_export(lambda x: weighed(f(x)), x, platforms=["cuda"])
    with pytest.raises(pb.MissingRuleError, match=r"no derivative rule for .* @cusolver_"):
        program.grad()


NO_DERIVATIVE = {
    "all of Q": (lambda x: jnp.linalg.qr(x, mode="complete")[0], "@lapack_dgeqrf_ffi"),
    "scales of reflectors": (lambda x: jnp.linalg.qr(x, mode="raw")[1], "@lapack_dgeqrf_ffi"),
    "reflectors": (lambda x: jnp.linalg.qr(x, mode="raw")[0], "@lapack_dgeqrf_ffi"),
    "a part of them": (
        lambda x: jnp.tril(jnp.linalg.qr(x, mode="raw")[0].T, -1),
        "@lapack_dgeqrf_ffi",
    ),
    "singular vectors of nothing": (lambda x: jnp.linalg.svd(x)[0], "JAX has no derivative"),
    "eigenvalues": (lambda x: jnp.abs(jnp.linalg.eig(x.T @ x + 1j)[1]), "@lapack_zgeev_ffi"),
}


@pytest.mark.parametrize("name", NO_DERIVATIVE)
def test_what_has_no_derivative_says_what_to_do(name: str) -> None:
    """JAX has none of it either; the values are what they were."""
    f, words = NO_DERIVATIVE[name]
    program = of_export(lambda x: weighed(f(x)), TALL)
    np.testing.assert_allclose(program(TALL), weighed(f(TALL)), rtol=1e-12)
    with pytest.raises(pb.MissingRuleError, match=words) as caught:
        program.grad()
    assert ("vjp_order=1" in caught.value.do) == ("lapack" in words)


def of_lapack(letter: str, layout: tuple[int, int] = (1, 0)) -> Callable[[Any], Any]:
    types = jax.ShapeDtypeStruct((2, 2), "float64"), jax.ShapeDtypeStruct((), "int32")
    layouts = {"input_layouts": [layout], "output_layouts": [layout, ()]}
    call = jax.ffi.ffi_call("lapack_dpotrf_ffi", types, **layouts)
    return lambda x: call(x, uplo=np.uint8(ord(letter)))


def test_the_status_that_a_file_shows_is_that_of_lapack() -> None:
    """One that is only compared with 0 is not needed: what did not go well is NaN."""
    x = np.array([[2.0, 7.0], [0.5, 1.0]])
    program = of_export(of_lapack("L"), x)
    assert int(program(-np.eye(2))[1]) == 1
    found, status = program(x)
    assert int(status) == 0
    np.testing.assert_allclose(np.tril(found), np.linalg.cholesky(S2))
    assert found[0, 1] == 7.0
    only = of_export(lambda x: of_lapack("L")(x)[0][1, 1], x)
    np.testing.assert_allclose(only.grad()(x)[0, 0], 0.5**2 / 4 / (2 * found[1, 1]), rtol=1e-12)
    assert only.asm().count("lapack_dpotrf") == 1


@pytest.mark.parametrize("f", [of_lapack("U"), of_lapack("L", (0, 1))])
def test_what_jax_does_not_ask_of_lapack_has_no_derivative(f: Callable[[Any], Any]) -> None:
    """An upper triangle; one of rows, which is the lower triangle of what LAPACK sees."""
    x = np.array([[2.0, 0.5], [7.0, 1.0]])
    program = of_export(f, x)
    np.testing.assert_allclose(np.triu(program(x)[0]), np.linalg.cholesky(S2).T, rtol=1e-12)
    with pytest.raises(pb.MissingRuleError, match="@lapack_dpotrf_ffi"):
        program.jvp()
