// Every attribute that the op may have, with an integer operand that has no tangent slot.
// RUN: pullback-opt %s | filecheck %s
// RUN: pullback-opt %s | pullback-opt | filecheck %s
// RUN: pullback-opt %s --emit-bytecode | pullback-opt | filecheck %s

// CHECK-LABEL: func.func @main
// CHECK: stablehlo.composite "pullback.custom_jvp_call" %arg0, %arg1, %arg2
// CHECK-SAME: jvp = @f.jvp, jvp.01 = @f.jvp.01
// CHECK-SAME: rule = "f#0", transpose.01 = @f.t.01
func.func @main(%x: tensor<f32>, %n: tensor<i32>, %y: tensor<complex<f64>>) -> tensor<f32> {
  %0:2 = stablehlo.composite "pullback.custom_jvp_call" %x, %n, %y {
    composite_attributes = {
      rule = "f#0", jvp = @f.jvp, jvp.01 = @f.jvp.01, transpose.01 = @f.t.01
    },
    decomposition = @f
  } : (tensor<f32>, tensor<i32>, tensor<complex<f64>>) -> (tensor<f32>, tensor<i32>)
  return %0#0 : tensor<f32>
}
func.func private @f(%x: tensor<f32>, %n: tensor<i32>, %y: tensor<complex<f64>>)
    -> (tensor<f32>, tensor<i32>) {
  return %x, %n : tensor<f32>, tensor<i32>
}
func.func private @f.jvp(
    tensor<f32>, tensor<i32>, tensor<complex<f64>>, tensor<f32>, tensor<complex<f64>>
) -> (tensor<f32>, tensor<i32>, tensor<f32>)
func.func private @f.jvp.01(
    tensor<f32>, tensor<i32>, tensor<complex<f64>>, tensor<complex<f64>>
) -> (tensor<f32>, tensor<i32>, tensor<f32>)
func.func private @f.t.01(tensor<f32>, tensor<i32>, tensor<f32>) -> tensor<complex<f64>>
