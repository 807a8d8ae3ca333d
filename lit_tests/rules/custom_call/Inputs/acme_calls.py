from pullback.dialect.build import cos, mul
from pullback.rules.batching import batch_alike
from pullback.rules.registry import elementwise, linear, nondifferentiable, rule

elementwise("stablehlo.custom_call @acme_sine", lambda op, t: mul(t, cos(op.x)))
linear("stablehlo.custom_call @acme_twice", lambda op, cts: [mul(cts[0], 2.0)])
nondifferentiable("it is a step", "stablehlo.custom_call @acme_quantize", module=__name__)
batch_alike("stablehlo.custom_call @acme_twice", "stablehlo.custom_call @acme_quantize")


@rule("stablehlo.custom_call @acme_product")
class Product:
    @staticmethod
    def jvp(op, tangents):
        raise NotImplementedError

    @staticmethod
    def vjp(op, cts):
        return [mul(cts[0], op.rhs), mul(cts[0], op.lhs)]
