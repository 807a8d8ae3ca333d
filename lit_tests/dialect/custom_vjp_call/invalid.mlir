// RUN: pullback-opt %s --split-input-file --verify-diagnostics

func.func @custom_vjp_call_c1(%x: tensor<f32>, %n: tensor<i32>, %y: tensor<f64>) -> tensor<f32> {
  // expected-error @+1 {{custom_vjp_call_c1: unknown attribute 'transpose'; known: bwd, closed_over, fwd, jvp, refused, rule, sees_zeros, bwd.<mask>, fwd.<mask>, jvp.<mask>, bwd[<types>]}}
  %0:2 = stablehlo.composite "pullback.custom_vjp_call" %x, %n, %y {
    composite_attributes = {fwd = @f.fwd, bwd = @f.bwd, transpose = @f.bwd}, decomposition = @f
  } : (tensor<f32>, tensor<i32>, tensor<f64>) -> (tensor<f32>, tensor<i32>)
  return %0#0 : tensor<f32>
}
func.func private @f(%x: tensor<f32>, %n: tensor<i32>, %y: tensor<f64>) -> (tensor<f32>, tensor<i32>) {
  return %x, %n : tensor<f32>, tensor<i32>
}
func.func private @f.fwd(tensor<f32>, tensor<i32>, tensor<f64>) -> (tensor<f32>, tensor<i32>, tensor<2xf32>)
func.func private @f.bwd(tensor<2xf32>, tensor<f32>) -> (tensor<f32>, tensor<f64>)

// -----

func.func @custom_vjp_call_c2(%x: tensor<f32>, %n: tensor<i32>, %y: tensor<f64>) -> tensor<f32> {
  // expected-error @+1 {{custom_vjp_call_c2: `fwd` is a symbol reference, not "f.fwd"}}
  %0:2 = stablehlo.composite "pullback.custom_vjp_call" %x, %n, %y {
    composite_attributes = {fwd = "f.fwd", bwd = @f.bwd}, decomposition = @f
  } : (tensor<f32>, tensor<i32>, tensor<f64>) -> (tensor<f32>, tensor<i32>)
  return %0#0 : tensor<f32>
}
func.func private @f(%x: tensor<f32>, %n: tensor<i32>, %y: tensor<f64>) -> (tensor<f32>, tensor<i32>) {
  return %x, %n : tensor<f32>, tensor<i32>
}
func.func private @f.fwd(tensor<f32>, tensor<i32>, tensor<f64>) -> (tensor<f32>, tensor<i32>, tensor<2xf32>)
func.func private @f.bwd(tensor<2xf32>, tensor<f32>) -> (tensor<f32>, tensor<f64>)

// -----

func.func @custom_vjp_call_c3(%x: tensor<f32>, %n: tensor<i32>, %y: tensor<f64>) -> tensor<f32> {
  // expected-error @+1 {{custom_vjp_call_c3: `bwd` names @nowhere, which the module does not have}}
  %0:2 = stablehlo.composite "pullback.custom_vjp_call" %x, %n, %y {
    composite_attributes = {fwd = @f.fwd, bwd = @nowhere}, decomposition = @f
  } : (tensor<f32>, tensor<i32>, tensor<f64>) -> (tensor<f32>, tensor<i32>)
  return %0#0 : tensor<f32>
}
func.func private @f(%x: tensor<f32>, %n: tensor<i32>, %y: tensor<f64>) -> (tensor<f32>, tensor<i32>) {
  return %x, %n : tensor<f32>, tensor<i32>
}
func.func private @f.fwd(tensor<f32>, tensor<i32>, tensor<f64>) -> (tensor<f32>, tensor<i32>, tensor<2xf32>)

// -----

func.func @custom_vjp_call_c4(%x: tensor<f32>, %n: tensor<i32>, %y: tensor<f64>) -> tensor<f32> {
  // expected-error @+1 {{custom_vjp_call_c4: `fwd` and `bwd` come together}}
  %0:2 = stablehlo.composite "pullback.custom_vjp_call" %x, %n, %y {
    composite_attributes = {fwd = @f.fwd}, decomposition = @f
  } : (tensor<f32>, tensor<i32>, tensor<f64>) -> (tensor<f32>, tensor<i32>)
  return %0#0 : tensor<f32>
}
func.func private @f(%x: tensor<f32>, %n: tensor<i32>, %y: tensor<f64>) -> (tensor<f32>, tensor<i32>) {
  return %x, %n : tensor<f32>, tensor<i32>
}
func.func private @f.fwd(tensor<f32>, tensor<i32>, tensor<f64>) -> (tensor<f32>, tensor<i32>, tensor<2xf32>)

// -----

func.func @custom_vjp_call_c5(%x: tensor<f32>, %n: tensor<i32>, %y: tensor<f64>) -> tensor<f32> {
  // expected-error @+1 {{custom_vjp_call_c5: the mask of 'jvp.1' has one 0 or 1 for each of the 2 inexact operands}}
  %0:2 = stablehlo.composite "pullback.custom_vjp_call" %x, %n, %y {
    composite_attributes = {fwd = @f.fwd, bwd = @f.bwd, jvp.1 = @f.jvp}, decomposition = @f
  } : (tensor<f32>, tensor<i32>, tensor<f64>) -> (tensor<f32>, tensor<i32>)
  return %0#0 : tensor<f32>
}
func.func private @f(%x: tensor<f32>, %n: tensor<i32>, %y: tensor<f64>) -> (tensor<f32>, tensor<i32>) {
  return %x, %n : tensor<f32>, tensor<i32>
}
func.func private @f.fwd(tensor<f32>, tensor<i32>, tensor<f64>) -> (tensor<f32>, tensor<i32>, tensor<2xf32>)
func.func private @f.bwd(tensor<2xf32>, tensor<f32>) -> (tensor<f32>, tensor<f64>)
func.func private @f.jvp(tensor<f32>, tensor<i32>, tensor<f64>, tensor<f32>, tensor<f64>) -> (tensor<f32>, tensor<i32>, tensor<f32>)

// -----

func.func @custom_vjp_call_c6(%x: tensor<f32>, %n: tensor<i32>, %y: tensor<f64>) -> tensor<f32> {
  // expected-error @+1 {{custom_vjp_call_c6: `jvp` and 'jvp.11' are the same rule}}
  %0:2 = stablehlo.composite "pullback.custom_vjp_call" %x, %n, %y {
    composite_attributes = {fwd = @f.fwd, bwd = @f.bwd, jvp = @f.jvp, jvp.11 = @f.jvp}, decomposition = @f
  } : (tensor<f32>, tensor<i32>, tensor<f64>) -> (tensor<f32>, tensor<i32>)
  return %0#0 : tensor<f32>
}
func.func private @f(%x: tensor<f32>, %n: tensor<i32>, %y: tensor<f64>) -> (tensor<f32>, tensor<i32>) {
  return %x, %n : tensor<f32>, tensor<i32>
}
func.func private @f.fwd(tensor<f32>, tensor<i32>, tensor<f64>) -> (tensor<f32>, tensor<i32>, tensor<2xf32>)
func.func private @f.bwd(tensor<2xf32>, tensor<f32>) -> (tensor<f32>, tensor<f64>)
func.func private @f.jvp(tensor<f32>, tensor<i32>, tensor<f64>, tensor<f32>, tensor<f64>) -> (tensor<f32>, tensor<i32>, tensor<f32>)

// -----

func.func @custom_vjp_call_c6_backward(%x: tensor<f32>) -> tensor<f32> {
  // expected-error @+1 {{custom_vjp_call_c6: `fwd` and 'fwd.1' are the same rule}}
  %0 = stablehlo.composite "pullback.custom_vjp_call" %x {
    composite_attributes = {fwd = @f, bwd = @f, fwd.1 = @f, bwd.1 = @f}, decomposition = @f
  } : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
func.func private @f(%x: tensor<f32>) -> tensor<f32> {
  return %x : tensor<f32>
}

// -----

func.func @custom_vjp_call_c7(%x: tensor<f32>, %n: tensor<i32>, %y: tensor<f64>) -> tensor<f32> {
  // expected-error @+1 {{custom_vjp_call_c7: @f.fwd does not have the type that this op asks for}}
  %0:2 = stablehlo.composite "pullback.custom_vjp_call" %x, %n, %y {
    composite_attributes = {fwd = @f.fwd, bwd = @f.bwd}, decomposition = @f
  } : (tensor<f32>, tensor<i32>, tensor<f64>) -> (tensor<f32>, tensor<i32>)
  return %0#0 : tensor<f32>
}
func.func private @f(%x: tensor<f32>, %n: tensor<i32>, %y: tensor<f64>) -> (tensor<f32>, tensor<i32>) {
  return %x, %n : tensor<f32>, tensor<i32>
}
func.func private @f.fwd(tensor<f32>, tensor<i32>, tensor<f32>) -> (tensor<f32>, tensor<i32>, tensor<2xf32>)
func.func private @f.bwd(tensor<2xf32>, tensor<f32>) -> (tensor<f32>, tensor<f64>)

// -----

func.func @custom_vjp_call_c7_missing_output(%x: tensor<f32>, %n: tensor<i32>, %y: tensor<f64>) -> tensor<f32> {
  // expected-error @+1 {{custom_vjp_call_c7: @f.fwd does not have the type that this op asks for}}
  %0:2 = stablehlo.composite "pullback.custom_vjp_call" %x, %n, %y {
    composite_attributes = {fwd = @f.fwd, bwd = @f.bwd}, decomposition = @f
  } : (tensor<f32>, tensor<i32>, tensor<f64>) -> (tensor<f32>, tensor<i32>)
  return %0#0 : tensor<f32>
}
func.func private @f(%x: tensor<f32>, %n: tensor<i32>, %y: tensor<f64>) -> (tensor<f32>, tensor<i32>) {
  return %x, %n : tensor<f32>, tensor<i32>
}
func.func private @f.fwd(tensor<f32>, tensor<i32>, tensor<f64>) -> (tensor<f32>)
func.func private @f.bwd(tensor<2xf32>, tensor<f32>) -> (tensor<f32>, tensor<f64>)

// -----

func.func @custom_vjp_call_c8(%x: tensor<f32>, %n: tensor<i32>, %y: tensor<f64>) -> tensor<f32> {
  // expected-error @+1 {{custom_vjp_call_c8: @f.bwd does not have the type that this op asks for}}
  %0:2 = stablehlo.composite "pullback.custom_vjp_call" %x, %n, %y {
    composite_attributes = {fwd = @f.fwd, bwd = @f.bwd}, decomposition = @f
  } : (tensor<f32>, tensor<i32>, tensor<f64>) -> (tensor<f32>, tensor<i32>)
  return %0#0 : tensor<f32>
}
func.func private @f(%x: tensor<f32>, %n: tensor<i32>, %y: tensor<f64>) -> (tensor<f32>, tensor<i32>) {
  return %x, %n : tensor<f32>, tensor<i32>
}
func.func private @f.fwd(tensor<f32>, tensor<i32>, tensor<f64>) -> (tensor<f32>, tensor<i32>, tensor<2xf32>)
func.func private @f.bwd(tensor<3xf32>, tensor<f32>) -> (tensor<f32>, tensor<f64>)

// -----

func.func @custom_vjp_call_c8_cotangent_of_an_integer(%x: tensor<f32>, %n: tensor<i32>, %y: tensor<f64>) -> tensor<f32> {
  // expected-error @+1 {{custom_vjp_call_c8: @f.bwd does not have the type that this op asks for}}
  %0:2 = stablehlo.composite "pullback.custom_vjp_call" %x, %n, %y {
    composite_attributes = {fwd = @f.fwd, bwd = @f.bwd}, decomposition = @f
  } : (tensor<f32>, tensor<i32>, tensor<f64>) -> (tensor<f32>, tensor<i32>)
  return %0#0 : tensor<f32>
}
func.func private @f(%x: tensor<f32>, %n: tensor<i32>, %y: tensor<f64>) -> (tensor<f32>, tensor<i32>) {
  return %x, %n : tensor<f32>, tensor<i32>
}
func.func private @f.fwd(tensor<f32>, tensor<i32>, tensor<f64>) -> (tensor<f32>, tensor<i32>, tensor<2xf32>)
func.func private @f.bwd(tensor<2xf32>, tensor<f32>) -> (tensor<f32>, tensor<i32>, tensor<f64>)

// -----

func.func @custom_vjp_call_c9(%x: tensor<f32>, %n: tensor<i32>, %y: tensor<f64>) -> tensor<f32> {
  // expected-error @+1 {{custom_vjp_call_c9: @f.jvp does not have the type that this op asks for}}
  %0:2 = stablehlo.composite "pullback.custom_vjp_call" %x, %n, %y {
    composite_attributes = {fwd = @f.fwd, bwd = @f.bwd, jvp = @f.jvp}, decomposition = @f
  } : (tensor<f32>, tensor<i32>, tensor<f64>) -> (tensor<f32>, tensor<i32>)
  return %0#0 : tensor<f32>
}
func.func private @f(%x: tensor<f32>, %n: tensor<i32>, %y: tensor<f64>) -> (tensor<f32>, tensor<i32>) {
  return %x, %n : tensor<f32>, tensor<i32>
}
func.func private @f.fwd(tensor<f32>, tensor<i32>, tensor<f64>) -> (tensor<f32>, tensor<i32>, tensor<2xf32>)
func.func private @f.bwd(tensor<2xf32>, tensor<f32>) -> (tensor<f32>, tensor<f64>)
func.func private @f.jvp(tensor<f32>, tensor<i32>, tensor<f64>) -> (tensor<f32>, tensor<i32>, tensor<f32>)

// -----

func.func @custom_vjp_call_c4_mask(%x: tensor<f32>, %y: tensor<f64>) -> tensor<f32> {
  // expected-error @+1 {{custom_vjp_call_c4: `fwd` and `bwd` come together}}
  %0 = stablehlo.composite "pullback.custom_vjp_call" %x, %y {
    composite_attributes = {fwd.01 = @f, bwd.10 = @f}, decomposition = @f
  } : (tensor<f32>, tensor<f64>) -> tensor<f32>
  return %0 : tensor<f32>
}
func.func private @f(%x: tensor<f32>, %y: tensor<f64>) -> tensor<f32> {
  return %x : tensor<f32>
}

// -----

func.func @custom_vjp_call_c8_mask(%x: tensor<f32>, %y: tensor<f64>) -> tensor<f32> {
  // expected-error @+1 {{custom_vjp_call_c8: @f.bwd does not have the type that this op asks for}}
  %0 = stablehlo.composite "pullback.custom_vjp_call" %x, %y {
    composite_attributes = {fwd.01 = @f.fwd, bwd.01 = @f.bwd}, decomposition = @f
  } : (tensor<f32>, tensor<f64>) -> tensor<f32>
  return %0 : tensor<f32>
}
func.func private @f(%x: tensor<f32>, %y: tensor<f64>) -> tensor<f32> {
  return %x : tensor<f32>
}
func.func private @f.fwd(tensor<f32>, tensor<f64>) -> (tensor<f32>, tensor<2xf32>)
func.func private @f.bwd(tensor<2xf32>, tensor<f32>) -> (tensor<f32>, tensor<f64>)

// -----

func.func @custom_vjp_call_c10(%x: tensor<f32>) -> tensor<f32> {
  // expected-error @+1 {{custom_vjp_call_c10: `refused` has 'bwd', which is no rule that is missing here}}
  %0 = stablehlo.composite "pullback.custom_vjp_call" %x {
    composite_attributes = {refused = {bwd = "never"}}, decomposition = @f
  } : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
func.func private @f(%x: tensor<f32>) -> tensor<f32> {
  return %x : tensor<f32>
}

// -----

func.func @custom_vjp_call_c10_text(%x: tensor<f32>) -> tensor<f32> {
  // expected-error @+1 {{custom_vjp_call_c10: `refused` says a string, not 3 : i64}}
  %0 = stablehlo.composite "pullback.custom_vjp_call" %x {
    composite_attributes = {refused = {vjp = 3 : i64}}, decomposition = @f
  } : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
func.func private @f(%x: tensor<f32>) -> tensor<f32> {
  return %x : tensor<f32>
}

// -----

func.func @custom_vjp_call_c2_closes_over_less_than_nothing(%x: tensor<f32>) -> tensor<f32> {
  // expected-error @+1 {{custom_vjp_call_c2: `closed_over` is -1, and there are 1 operands}}
  %0 = stablehlo.composite "pullback.custom_vjp_call" %x {
    composite_attributes = {closed_over = -1 : i64}, decomposition = @f
  } : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
func.func private @f(%x: tensor<f32>) -> tensor<f32> {
  return %x : tensor<f32>
}

// -----

func.func @custom_vjp_call_c2_closes_over_more_than_there_is(%x: tensor<f32>) -> tensor<f32> {
  // expected-error @+1 {{custom_vjp_call_c2: `closed_over` is 2, and there are 1 operands}}
  %0 = stablehlo.composite "pullback.custom_vjp_call" %x {
    composite_attributes = {closed_over = 2 : i64}, decomposition = @f
  } : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
func.func private @f(%x: tensor<f32>) -> tensor<f32> {
  return %x : tensor<f32>
}

// -----

func.func @custom_vjp_call_c5_closed_over(%x: tensor<f32>, %y: tensor<f32>) -> tensor<f32> {
  // expected-error @+1 {{custom_vjp_call_c5: 'bwd.11' is for an operand that is closed over}}
  %0 = stablehlo.composite "pullback.custom_vjp_call" %x, %y {
    composite_attributes = {closed_over = 1 : i64, fwd.11 = @f.fwd, bwd.11 = @f.bwd}, decomposition = @f
  } : (tensor<f32>, tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
func.func private @f(%x: tensor<f32>, %y: tensor<f32>) -> tensor<f32> {
  return %y : tensor<f32>
}
func.func private @f.fwd(tensor<f32>, tensor<f32>) -> tensor<f32>
func.func private @f.bwd(tensor<f32>) -> (tensor<f32>, tensor<f32>)

// -----

func.func @custom_vjp_call_c8_cotangent_of_another_shape(%x: tensor<f16>) -> tensor<f16> {
  // expected-error @+1 {{custom_vjp_call_c8: @f.bwd does not have the type that this op asks for}}
  %0 = stablehlo.composite "pullback.custom_vjp_call" %x {
    composite_attributes = {fwd = @f.fwd, bwd = @f.bwd}, decomposition = @f
  } : (tensor<f16>) -> tensor<f16>
  return %0 : tensor<f16>
}
func.func private @f(%x: tensor<f16>) -> tensor<f16> {
  return %x : tensor<f16>
}
func.func private @f.fwd(tensor<f16>) -> (tensor<f16>, tensor<2xf32>)
func.func private @f.bwd(tensor<2xf32>, tensor<f16>) -> tensor<1xf16>

// -----

func.func @custom_vjp_call_c11(%x: tensor<f16>) -> tensor<f16> {
  // expected-error @+1 {{custom_vjp_call_c11: @f.bwd does not have the type that this op asks for}}
  %0 = stablehlo.composite "pullback.custom_vjp_call" %x {
    composite_attributes = {fwd = @f.fwd, bwd = @f.bwd, "bwd[f32]" = @f.bwd}, decomposition = @f
  } : (tensor<f16>) -> tensor<f16>
  return %0 : tensor<f16>
}
func.func private @f(%x: tensor<f16>) -> tensor<f16> {
  return %x : tensor<f16>
}
func.func private @f.fwd(tensor<f16>) -> (tensor<f16>, tensor<2xf32>)
func.func private @f.bwd(tensor<2xf32>, tensor<f16>) -> tensor<f32>

// -----

func.func @custom_vjp_call_c11_of_no_pair(%x: tensor<f16>) -> tensor<f16> {
  // expected-error @+1 {{custom_vjp_call_c11: 'bwd[f32]' is of no pair of `fwd` and `bwd`}}
  %0 = stablehlo.composite "pullback.custom_vjp_call" %x {
    composite_attributes = {"bwd[f32]" = @f.bwd}, decomposition = @f
  } : (tensor<f16>) -> tensor<f16>
  return %0 : tensor<f16>
}
func.func private @f(%x: tensor<f16>) -> tensor<f16> {
  return %x : tensor<f16>
}
func.func private @f.bwd(tensor<2xf32>, tensor<f16>) -> tensor<f32>

// -----

func.func @custom_vjp_call_c11_types(%x: tensor<f16>) -> tensor<f16> {
  // expected-error @+1 {{custom_vjp_call_c11: 'bwd[i32]' has no element type of floats or complex numbers for each of the 1 inexact results}}
  %0 = stablehlo.composite "pullback.custom_vjp_call" %x {
    composite_attributes = {fwd = @f.fwd, bwd = @f.bwd, "bwd[i32]" = @f.bwd}, decomposition = @f
  } : (tensor<f16>) -> tensor<f16>
  return %0 : tensor<f16>
}
func.func private @f(%x: tensor<f16>) -> tensor<f16> {
  return %x : tensor<f16>
}
func.func private @f.fwd(tensor<f16>) -> (tensor<f16>, tensor<2xf32>)
func.func private @f.bwd(tensor<2xf32>, tensor<f16>) -> tensor<f32>
