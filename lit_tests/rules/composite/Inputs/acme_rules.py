from pullback.dialect.build import cos, div, mul, neg
from pullback.rules.registry import elementwise, linear, nondifferentiable, rule

# scale[i](op, t) is t times the partial derivative with respect to operand i
elementwise("acme.sine", lambda op, t: mul(t, cos(op.x)))

# the jvp of a linear op is the op itself; give its transpose
linear("acme.negative", lambda op, cts: [neg(cts[0])])

nondifferentiable("it is a step", "acme.quantize", module=__name__)


@rule("acme.modulus")
class Modulus:
    """d|x| = x / |x| dx: what no helper makes is a class with static methods."""

    @staticmethod
    def jvp(op, tangents):  # one entry per result, None for zero
        return [mul(tangents[0], div(op.x, op.result))]

    @staticmethod
    def vjp(op, cts):  # one entry per operand, None for zero
        return [mul(cts[0], div(op.x, op.result))]
