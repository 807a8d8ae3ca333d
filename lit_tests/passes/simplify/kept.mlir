// What stays: calls that have rules, and what a rewrite would compute in another way.
// RUN: pullback-opt %s --simplify | filecheck %s
// RUN: pullback-opt %s --to-stablehlo=without=simplify | filecheck %s --check-prefix=WITHOUT

// Both variables may be infinite, and then JAX's derivatives are 1.
// CHECK-LABEL: func.func @two_variables
// CHECK: call @logaddexp
// CHECK: stablehlo.exponential
func.func @two_variables(%x: tensor<f32>, %c: tensor<f32>) -> tensor<f32> {
  %y = call @logaddexp(%x, %c) : (tensor<f32>, tensor<f32>) -> tensor<f32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %infinity = stablehlo.constant dense<0x7F800000> : tensor<f32>
  %1 = stablehlo.compare EQ, %x, %infinity : (tensor<f32>, tensor<f32>) -> tensor<i1>
  %2 = stablehlo.select %1, %zero, %x : tensor<i1>, tensor<f32>
  %3 = stablehlo.compare EQ, %y, %infinity : (tensor<f32>, tensor<f32>) -> tensor<i1>
  %4 = stablehlo.select %3, %zero, %y : tensor<i1>, tensor<f32>
  %5 = stablehlo.subtract %2, %4 : tensor<f32>
  %6 = stablehlo.exponential %5 : tensor<f32>
  return %6 : tensor<f32>
}

// CHECK-LABEL: func.func @rule
// CHECK: stablehlo.composite "pullback.custom_jvp_call"
// CHECK: stablehlo.exponential
// WITHOUT-LABEL: func.func @rule
// WITHOUT: call @logaddexp
// WITHOUT: stablehlo.exponential
func.func @rule(%x: tensor<f32>) -> tensor<f32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %infinity = stablehlo.constant dense<0x7F800000> : tensor<f32>
  %y = stablehlo.composite "pullback.custom_jvp_call" %x, %zero {
    composite_attributes = {rule = "logaddexp"}, decomposition = @logaddexp
  } : (tensor<f32>, tensor<f32>) -> tensor<f32>
  %1 = stablehlo.compare EQ, %x, %infinity : (tensor<f32>, tensor<f32>) -> tensor<i1>
  %2 = stablehlo.select %1, %zero, %x : tensor<i1>, tensor<f32>
  %3 = stablehlo.compare EQ, %y, %infinity : (tensor<f32>, tensor<f32>) -> tensor<i1>
  %4 = stablehlo.select %3, %zero, %y : tensor<i1>, tensor<f32>
  %5 = stablehlo.subtract %2, %4 : tensor<f32>
  %6 = stablehlo.exponential %5 : tensor<f32>
  return %6 : tensor<f32>
}

func.func private @logaddexp(%x: tensor<f32>, %y: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.maximum %x, %y : tensor<f32>
  %1 = stablehlo.subtract %x, %y : tensor<f32>
  %2 = stablehlo.compare NE, %1, %1 : (tensor<f32>, tensor<f32>) -> tensor<i1>
  %3 = stablehlo.add %x, %y : tensor<f32>
  %4 = stablehlo.abs %1 : tensor<f32>
  %5 = stablehlo.negate %4 : tensor<f32>
  %6 = stablehlo.exponential %5 : tensor<f32>
  %7 = stablehlo.log_plus_one %6 : tensor<f32>
  %8 = stablehlo.add %0, %7 : tensor<f32>
  %9 = stablehlo.select %2, %3, %8 : tensor<i1>, tensor<f32>
  return %9 : tensor<f32>
}

// CHECK-LABEL: func.func @large_window
// CHECK: stablehlo.select_and_scatter
func.func @large_window(%x: tensor<34xf32>, %ct: tensor<2xf32>) -> tensor<34xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = "stablehlo.select_and_scatter"(%x, %ct, %zero) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %1 = stablehlo.compare GE, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  }, {
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %1 = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %1 : tensor<f32>
  }) {window_dimensions = array<i64: 17>, window_strides = array<i64: 17>}
    : (tensor<34xf32>, tensor<2xf32>, tensor<f32>) -> tensor<34xf32>
  return %0 : tensor<34xf32>
}

// CHECK-LABEL: func.func @other_body
// CHECK: stablehlo.select_and_scatter
func.func @other_body(%x: tensor<4xf32>, %ct: tensor<2xf32>) -> tensor<4xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = "stablehlo.select_and_scatter"(%x, %ct, %zero) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %1 = stablehlo.compare GE, %b, %a : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  }, {
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %1 = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %1 : tensor<f32>
  }) {window_dimensions = array<i64: 2>, window_strides = array<i64: 2>}
    : (tensor<4xf32>, tensor<2xf32>, tensor<f32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// A total order tells 0.0 from -0.0, and has a place for NaN.
// CHECK-LABEL: func.func @total_order
// CHECK: stablehlo.select_and_scatter
func.func @total_order(%x: tensor<4xf32>, %ct: tensor<2xf32>) -> tensor<4xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = "stablehlo.select_and_scatter"(%x, %ct, %zero) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %1 = stablehlo.compare GE, %a, %b, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  }, {
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %1 = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %1 : tensor<f32>
  }) {window_dimensions = array<i64: 2>, window_strides = array<i64: 2>}
    : (tensor<4xf32>, tensor<2xf32>, tensor<f32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// CHECK-LABEL: func.func @other_sum
// CHECK: stablehlo.select_and_scatter
func.func @other_sum(%x: tensor<4xf32>, %ct: tensor<2xf32>) -> tensor<4xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = "stablehlo.select_and_scatter"(%x, %ct, %zero) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %1 = stablehlo.compare GE, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  }, {
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %1 = stablehlo.add %b, %b : tensor<f32>
    stablehlo.return %1 : tensor<f32>
  }) {window_dimensions = array<i64: 2>, window_strides = array<i64: 2>}
    : (tensor<4xf32>, tensor<2xf32>, tensor<f32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// CHECK-LABEL: func.func @padded
// CHECK: stablehlo.select_and_scatter
func.func @padded(%x: tensor<4xf32>, %ct: tensor<3xf32>) -> tensor<4xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = "stablehlo.select_and_scatter"(%x, %ct, %zero) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %1 = stablehlo.compare GE, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  }, {
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %1 = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %1 : tensor<f32>
  }) {window_dimensions = array<i64: 2>, window_strides = array<i64: 2>,
      padding = dense<1> : tensor<1x2xi64>}
    : (tensor<4xf32>, tensor<3xf32>, tensor<f32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
