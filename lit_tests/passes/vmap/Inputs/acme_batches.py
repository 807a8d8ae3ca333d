from pullback.dialect import build
from pullback.rules.batching import MappedOp, batch, batch_alike, shifted

batch_alike("acme.modulus", "acme.negative")  # the same on arrays with one dimension more


@batch("acme.flip")
def _flip(op: MappedOp):
    """Each item turned around: its dimensions come after the batch axis."""
    x = op.values[0]
    dimensions = build.i64s(shifted(range(len(op.shape(0)))))
    return build.emit1("stablehlo.reverse", x.type, [x], {"dimensions": dimensions})
