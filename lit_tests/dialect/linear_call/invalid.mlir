// RUN: pullback-opt %s --split-input-file --verify-diagnostics

func.func @linear_call_c1(%r: tensor<f32>, %x: tensor<f32>) -> tensor<f32> {
  // expected-error @+1 {{linear_call_c1: unknown attribute 'transposed'; known: num_residuals, refused, rule, transpose, transpose_only}}
  %0 = stablehlo.composite "pullback.linear_call" %r, %x {
    composite_attributes = {num_residuals = 1 : i64, transposed = @l.t}, decomposition = @l
  } : (tensor<f32>, tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
func.func private @l(tensor<f32>, tensor<f32>) -> tensor<f32>
func.func private @l.t(tensor<f32>, tensor<f32>) -> (tensor<f32>)

// -----

func.func @linear_call_c2(%r: tensor<f32>, %x: tensor<f32>) -> tensor<f32> {
  // expected-error @+1 {{linear_call_c2: `num_residuals` is an i64, not 1 : i32}}
  %0 = stablehlo.composite "pullback.linear_call" %r, %x {
    composite_attributes = {num_residuals = 1 : i32, transpose = @l.t}, decomposition = @l
  } : (tensor<f32>, tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
func.func private @l(tensor<f32>, tensor<f32>) -> tensor<f32>
func.func private @l.t(tensor<f32>, tensor<f32>) -> (tensor<f32>)

// -----

func.func @linear_call_c2_transpose_only(%r: tensor<f32>, %x: tensor<f32>) -> tensor<f32> {
  // expected-error @+1 {{linear_call_c2: `transpose_only` is a string}}
  %0 = stablehlo.composite "pullback.linear_call" %r, %x {
    composite_attributes = {num_residuals = 1 : i64, transpose_only = @l.t}, decomposition = @l
  } : (tensor<f32>, tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
func.func private @l(tensor<f32>, tensor<f32>) -> tensor<f32>
func.func private @l.t(tensor<f32>, tensor<f32>) -> (tensor<f32>)

// -----

func.func @linear_call_c3(%r: tensor<f32>, %x: tensor<f32>) -> tensor<f32> {
  // expected-error @+1 {{linear_call_c3: `num_residuals` is 3, and there are 2 operands}}
  %0 = stablehlo.composite "pullback.linear_call" %r, %x {
    composite_attributes = {num_residuals = 3 : i64, transpose = @l.t}, decomposition = @l
  } : (tensor<f32>, tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
func.func private @l(tensor<f32>, tensor<f32>) -> tensor<f32>
func.func private @l.t(tensor<f32>, tensor<f32>) -> (tensor<f32>)

// -----

func.func @linear_call_c3_missing(%r: tensor<f32>, %x: tensor<f32>) -> tensor<f32> {
  // expected-error @+1 {{linear_call_c3: `num_residuals` is missing}}
  %0 = stablehlo.composite "pullback.linear_call" %r, %x {
    composite_attributes = {transpose = @l.t}, decomposition = @l
  } : (tensor<f32>, tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
func.func private @l(tensor<f32>, tensor<f32>) -> tensor<f32>
func.func private @l.t(tensor<f32>, tensor<f32>) -> (tensor<f32>)

// -----

func.func @linear_call_c3_negative(%r: tensor<f32>, %x: tensor<f32>) -> tensor<f32> {
  // expected-error @+1 {{linear_call_c3: `num_residuals` is -1, and there are 2 operands}}
  %0 = stablehlo.composite "pullback.linear_call" %r, %x {
    composite_attributes = {num_residuals = -1 : i64, transpose = @l.t}, decomposition = @l
  } : (tensor<f32>, tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
func.func private @l(tensor<f32>, tensor<f32>) -> tensor<f32>
func.func private @l.t(tensor<f32>, tensor<f32>) -> (tensor<f32>)

// -----

func.func @linear_call_c4(%r: tensor<f32>, %x: tensor<f32>) -> tensor<f32> {
  // expected-error @+1 {{linear_call_c4: `transpose` names @nowhere, which the module does not have}}
  %0 = stablehlo.composite "pullback.linear_call" %r, %x {
    composite_attributes = {num_residuals = 1 : i64, transpose = @nowhere}, decomposition = @l
  } : (tensor<f32>, tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
func.func private @l(tensor<f32>, tensor<f32>) -> tensor<f32>
func.func private @l.t(tensor<f32>, tensor<f32>) -> (tensor<f32>)

// -----

func.func @linear_call_c5(%r: tensor<f32>, %x: tensor<i32>) -> tensor<f32> {
  // expected-error @+1 {{linear_call_c5: linear operands and results are inexact, not tensor<i32>}}
  %0 = stablehlo.composite "pullback.linear_call" %r, %x {
    composite_attributes = {num_residuals = 1 : i64, rule = "l"}, decomposition = @l
  } : (tensor<f32>, tensor<i32>) -> tensor<f32>
  return %0 : tensor<f32>
}
func.func private @l(tensor<f32>, tensor<i32>) -> tensor<f32>

// -----

func.func @linear_call_c5_result(%r: tensor<f32>, %x: tensor<f32>) -> tensor<i1> {
  // expected-error @+1 {{linear_call_c5: linear operands and results are inexact, not tensor<i1>}}
  %0 = stablehlo.composite "pullback.linear_call" %r, %x {
    composite_attributes = {num_residuals = 1 : i64, rule = "l"}, decomposition = @l
  } : (tensor<f32>, tensor<f32>) -> tensor<i1>
  return %0 : tensor<i1>
}
func.func private @l(tensor<f32>, tensor<f32>) -> tensor<i1>

// -----

func.func @linear_call_c6(%r: tensor<f32>, %x: tensor<f32>) -> tensor<f32> {
  // expected-error @+1 {{linear_call_c6: @l.t does not have the type that this op asks for}}
  %0 = stablehlo.composite "pullback.linear_call" %r, %x {
    composite_attributes = {num_residuals = 1 : i64, transpose = @l.t}, decomposition = @l
  } : (tensor<f32>, tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
func.func private @l(tensor<f32>, tensor<f32>) -> tensor<f32>
func.func private @l.t(tensor<f32>, tensor<f32>) -> (tensor<1xf32>)

// -----

func.func @linear_call_c6_without_residual(%r: tensor<f32>, %x: tensor<f32>) -> tensor<f32> {
  // expected-error @+1 {{linear_call_c6: @l.t does not have the type that this op asks for}}
  %0 = stablehlo.composite "pullback.linear_call" %r, %x {
    composite_attributes = {num_residuals = 1 : i64, transpose = @l.t}, decomposition = @l
  } : (tensor<f32>, tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
func.func private @l(tensor<f32>, tensor<f32>) -> tensor<f32>
func.func private @l.t(tensor<f32>) -> (tensor<f32>)

// -----

func.func @linear_call_c7(%r: tensor<f32>, %x: tensor<f32>) -> tensor<f32> {
  // expected-error @+1 {{linear_call_c7: `refused` has 'jvp', which is no rule that is missing here}}
  %0 = stablehlo.composite "pullback.linear_call" %r, %x {
    composite_attributes = {num_residuals = 1 : i64, refused = {jvp = "never"}}, decomposition = @l
  } : (tensor<f32>, tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
func.func private @l(tensor<f32>, tensor<f32>) -> tensor<f32>
