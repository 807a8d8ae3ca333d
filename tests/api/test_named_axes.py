"""`reduce_axes`: totals instead of per-example gradients, of what all items of a vmap share."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback as pb

W = jnp.array([[0.3, -0.7, 1.1], [0.9, 0.2, -0.4]])
XS = jnp.linspace(-1.0, 1.0, 12).reshape(4, 3)


def loss(w, x):
    return jnp.sum(jax.nn.softplus(w @ x)) * x[0]


def per_example(f=loss, in_axes=(None, 0)):
    return jax.vmap(jax.grad(f, (0, 1)), in_axes)


def mapped(f, out_axes, in_axes=(None, 0)):
    return jax.vmap(f, in_axes, out_axes, axis_name="items")


def test_the_total_of_what_all_items_share():
    of_w, of_x = per_example()(W, XS)
    gradients = pb.grad(loss, (0, 1), reduce_axes=("items",))
    for run in (mapped(gradients, (None, 0)), jax.jit(mapped(gradients, (None, 0)))):
        total, each = run(W, XS)
        assert total.shape == W.shape
        np.testing.assert_allclose(total, of_w.sum(0), rtol=1e-5)
        np.testing.assert_allclose(each, of_x, rtol=1e-5)


def test_with_values_and_auxiliary_data():
    def with_aux(w, x):
        return loss(w, x), {"x": x, "mean": jnp.mean(w)}

    derive = pb.value_and_grad(with_aux, has_aux=True, reduce_axes="items")
    (values, aux), total = mapped(derive, ((0, {"x": 0, "mean": None}), None))(W, XS)
    np.testing.assert_allclose(values, jax.vmap(loss, (None, 0))(W, XS), rtol=1e-5)
    np.testing.assert_allclose(aux["x"], XS)
    np.testing.assert_allclose(aux["mean"], jnp.mean(W), rtol=1e-6)
    np.testing.assert_allclose(total, per_example()(W, XS)[0].sum(0), rtol=1e-5)
    derive = pb.grad(with_aux, has_aux=True, reduce_axes="items")
    again, _ = mapped(derive, (None, 0))(W, XS)
    np.testing.assert_allclose(again, total, rtol=1e-6)


def test_of_the_map_that_vjp_returns():
    def pulled(w, x):
        _, pull = pb.vjp(loss, w, x, reduce_axes=("items",))
        return pull(2.0)

    total, each = mapped(pulled, (None, 0))(W, XS)
    of_w, of_x = per_example()(W, XS)
    np.testing.assert_allclose(total, 2.0 * of_w.sum(0), rtol=1e-5)
    np.testing.assert_allclose(each, 2.0 * of_x, rtol=1e-5)


@pytest.mark.parametrize("names", [(), ("rows",), ("columns",), ("rows", "columns")])
def test_over_some_of_several_axes(names):
    """`w` differs between rows, and `x` between columns."""
    ws = jnp.stack([W, 2.0 * W, -W])
    derive = pb.grad(loss, (0, 1), reduce_axes=names)
    of_columns = jax.vmap(derive, (None, 0), axis_name="columns")
    of_w, of_x = jax.vmap(of_columns, (0, None), axis_name="rows")(ws, XS)
    every_w, every_x = jax.vmap(per_example(), (0, None))(ws, XS)
    if "columns" in names:
        every_w = jnp.broadcast_to(every_w.sum(1, keepdims=True), every_w.shape)
    if "rows" in names:
        every_x = jnp.broadcast_to(every_x.sum(0, keepdims=True), every_x.shape)
    np.testing.assert_allclose(of_w, every_w, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(of_x, every_x, rtol=1e-5, atol=1e-6)


def test_where_no_item_moves_the_gradient():
    """All items have the same gradient, and the total has as many of it."""
    total = mapped(pb.grad(lambda w, x: jnp.sum(w**3), reduce_axes="items"), None)(W, XS)
    np.testing.assert_allclose(total, 4 * 3 * W**2, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_of_more_items_than_the_type_can_count(dtype: str) -> None:
    w, xs = jnp.ones((), dtype), jnp.zeros(70000, dtype)
    total = mapped(pb.grad(lambda w, x: w * 2**-10, reduce_axes="items"), None)(w, xs)
    assert total.dtype == w.dtype
    np.testing.assert_allclose(total.astype(float), 70000 * 2**-10, rtol=1e-2)


def test_by_a_rule():
    """The total is of what the rule says."""
    clip = jax.custom_vjp(lambda w: w)
    clip.defvjp(lambda w: (w, None), lambda _, ct: (jnp.clip(ct, -0.1, 0.1),))
    of_rule = lambda w, x: loss(clip(w), x)  # noqa: E731
    total = mapped(pb.grad(of_rule, reduce_axes="items"), None)(W, XS)
    np.testing.assert_allclose(total, per_example(of_rule)(W, XS)[0].sum(0), rtol=1e-5)


def test_a_total_is_differentiated_again():
    """By JAX, along the items: the derivative of a sum."""

    def direction(w, x):
        return jnp.vdot(pb.grad(loss, reduce_axes="items")(w, x), W)

    def of_one(w, x):
        return jnp.vdot(jax.grad(loss)(w, x), W)

    def of_all(w):
        return mapped(direction, None)(w, XS)

    expected = jax.grad(lambda w: jax.vmap(of_one, (None, 0))(w, XS).sum())(W)
    np.testing.assert_allclose(jax.grad(of_all)(W), expected, rtol=1e-4)
    moved = jax.jvp(of_all, (W,), (W,))[1]
    np.testing.assert_allclose(moved, jnp.vdot(expected, W), rtol=1e-4)
    np.testing.assert_allclose(pb.grad(of_all)(W), expected, rtol=1e-4)


def test_integers_have_no_total():
    f = lambda n, w, x: n * loss(w, x)  # noqa: E731
    derive = pb.grad(f, (0, 1), allow_int=True, reduce_axes="items")
    run = lambda n, w, x: derive(n, w, x)[1]  # noqa: E731
    total = mapped(run, None, (None, None, 0))(3, W, XS)
    np.testing.assert_allclose(total, 3 * per_example()(W, XS)[0].sum(0), rtol=1e-5)


def test_an_axis_that_is_not_mapped_is_an_error():
    for call in (
        lambda: pb.grad(loss, reduce_axes=("items",))(W, XS[0]),
        lambda: pb.vjp(loss, W, XS[0], reduce_axes="items"),
        lambda: jax.vmap(pb.grad(loss, reduce_axes="items"), (None, 0), axis_name="i")(W, XS),
        lambda: mapped(pb.grad(loss, reduce_axes={"items"}), None)(W, XS),
    ):
        with pytest.raises(pb.ArgumentMismatchError, match="is no axis of a vmap around") as e:
            call()
        assert "axis_name=" in e.value.do


def test_a_map_that_has_left_the_vmap_is_an_error():
    pull = mapped(lambda w, x: pb.vjp(loss, w, x, reduce_axes="items")[1], 0)(W, XS)
    use = jax.vmap(lambda pull: pull(1.0))
    for call in (use, jax.jit(use)):
        with pytest.raises(pb.ArgumentMismatchError, match="outside of the vmap that has it"):
            call(pull)


def test_an_axis_of_a_mesh_is_an_error():
    mesh = jax.make_mesh((1,), ("items",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec
    run = jax.shard_map(
        lambda w, x: pb.grad(loss, reduce_axes="items")(w, x[0]),
        mesh=mesh,
        in_specs=(spec(), spec("items")),
        out_specs=spec(),
        check_vma=False,
    )
    with pytest.raises(pb.ArgumentMismatchError, match="no axis of a vmap") as e:
        run(W, XS)
    assert "jax.lax.psum" in e.value.do


def test_the_sum_is_part_of_the_product():
    """XLA never has the gradients of all items in memory."""
    w, xs = jnp.ones((64, 64)), jnp.ones((512, 64))
    run = jax.jit(mapped(pb.grad(loss, reduce_axes="items"), None))
    memory = run.lower(w, xs).compile().memory_analysis()
    assert memory.temp_size_in_bytes < w.nbytes * 512 / 8
