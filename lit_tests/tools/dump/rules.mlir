// With --rules every kind of rule is a function of the module, named after the function it belongs to.
// RUN: pullback dump %S/../../../examples/rules.py:train_step --rules | filecheck %s

// CHECK-DAG: func.func private @clip_cotangent.fwd(
// CHECK-DAG: func.func private @clip_cotangent.bwd(
// CHECK-DAG: func.func private @logistic_loss.jvp(
// CHECK-DAG: func.func private @relu.jvp(
// CHECK-DAG: {bwd = @clip_cotangent.bwd, fwd = @clip_cotangent.fwd}
// CHECK-DAG: transpose = @{{.*}}.t
