// RUN: pullback-opt %s --split-input-file --verify-diagnostics

func.func @custom_jvp_call_c1(%x: tensor<f32>, %n: tensor<i32>, %y: tensor<f64>) -> tensor<f32> {
  // expected-error @+1 {{custom_jvp_call_c1: unknown attribute 'jvq'; known: closed_over, jvp, refused, rule, sees_zeros, jvp.<mask>, transpose.<mask>}}
  %0:2 = stablehlo.composite "pullback.custom_jvp_call" %x, %n, %y {
    composite_attributes = {jvq = @f.jvp}, decomposition = @f
  } : (tensor<f32>, tensor<i32>, tensor<f64>) -> (tensor<f32>, tensor<i32>)
  return %0#0 : tensor<f32>
}
func.func private @f(%x: tensor<f32>, %n: tensor<i32>, %y: tensor<f64>) -> (tensor<f32>, tensor<i32>) {
  return %x, %n : tensor<f32>, tensor<i32>
}
func.func private @f.jvp(tensor<f32>, tensor<i32>, tensor<f64>, tensor<f32>, tensor<f64>) -> (tensor<f32>, tensor<i32>, tensor<f32>)

// -----

func.func @custom_jvp_call_c1_unmasked_transpose(%x: tensor<f32>, %n: tensor<i32>, %y: tensor<f64>) -> tensor<f32> {
  // expected-error @+1 {{custom_jvp_call_c1: unknown attribute 'transpose'}}
  %0:2 = stablehlo.composite "pullback.custom_jvp_call" %x, %n, %y {
    composite_attributes = {jvp = @f.jvp, transpose = @f.jvp}, decomposition = @f
  } : (tensor<f32>, tensor<i32>, tensor<f64>) -> (tensor<f32>, tensor<i32>)
  return %0#0 : tensor<f32>
}
func.func private @f(%x: tensor<f32>, %n: tensor<i32>, %y: tensor<f64>) -> (tensor<f32>, tensor<i32>) {
  return %x, %n : tensor<f32>, tensor<i32>
}
func.func private @f.jvp(tensor<f32>, tensor<i32>, tensor<f64>, tensor<f32>, tensor<f64>) -> (tensor<f32>, tensor<i32>, tensor<f32>)

// -----

func.func @custom_jvp_call_c2(%x: tensor<f32>, %n: tensor<i32>, %y: tensor<f64>) -> tensor<f32> {
  // expected-error @+1 {{custom_jvp_call_c2: `jvp` is a symbol reference, not "f.jvp"}}
  %0:2 = stablehlo.composite "pullback.custom_jvp_call" %x, %n, %y {
    composite_attributes = {jvp = "f.jvp"}, decomposition = @f
  } : (tensor<f32>, tensor<i32>, tensor<f64>) -> (tensor<f32>, tensor<i32>)
  return %0#0 : tensor<f32>
}
func.func private @f(%x: tensor<f32>, %n: tensor<i32>, %y: tensor<f64>) -> (tensor<f32>, tensor<i32>) {
  return %x, %n : tensor<f32>, tensor<i32>
}
func.func private @f.jvp(tensor<f32>, tensor<i32>, tensor<f64>, tensor<f32>, tensor<f64>) -> (tensor<f32>, tensor<i32>, tensor<f32>)

// -----

func.func @custom_jvp_call_c2_rule_is_a_string(%x: tensor<f32>, %n: tensor<i32>, %y: tensor<f64>) -> tensor<f32> {
  // expected-error @+1 {{custom_jvp_call_c2: `rule` is a string}}
  %0:2 = stablehlo.composite "pullback.custom_jvp_call" %x, %n, %y {
    composite_attributes = {rule = 1 : i64}, decomposition = @f
  } : (tensor<f32>, tensor<i32>, tensor<f64>) -> (tensor<f32>, tensor<i32>)
  return %0#0 : tensor<f32>
}
func.func private @f(%x: tensor<f32>, %n: tensor<i32>, %y: tensor<f64>) -> (tensor<f32>, tensor<i32>) {
  return %x, %n : tensor<f32>, tensor<i32>
}

// -----

func.func @custom_jvp_call_c3(%x: tensor<f32>, %n: tensor<i32>, %y: tensor<f64>) -> tensor<f32> {
  // expected-error @+1 {{custom_jvp_call_c3: `jvp` names @nowhere, which the module does not have}}
  %0:2 = stablehlo.composite "pullback.custom_jvp_call" %x, %n, %y {
    composite_attributes = {jvp = @nowhere}, decomposition = @f
  } : (tensor<f32>, tensor<i32>, tensor<f64>) -> (tensor<f32>, tensor<i32>)
  return %0#0 : tensor<f32>
}
func.func private @f(%x: tensor<f32>, %n: tensor<i32>, %y: tensor<f64>) -> (tensor<f32>, tensor<i32>) {
  return %x, %n : tensor<f32>, tensor<i32>
}

// -----

func.func @custom_jvp_call_c4(%x: tensor<f32>, %n: tensor<i32>, %y: tensor<f64>) -> tensor<f32> {
  // expected-error @+1 {{custom_jvp_call_c4: the mask of 'jvp.011' has one 0 or 1 for each of the 2 inexact operands}}
  %0:2 = stablehlo.composite "pullback.custom_jvp_call" %x, %n, %y {
    composite_attributes = {jvp.011 = @f.jvp}, decomposition = @f
  } : (tensor<f32>, tensor<i32>, tensor<f64>) -> (tensor<f32>, tensor<i32>)
  return %0#0 : tensor<f32>
}
func.func private @f(%x: tensor<f32>, %n: tensor<i32>, %y: tensor<f64>) -> (tensor<f32>, tensor<i32>) {
  return %x, %n : tensor<f32>, tensor<i32>
}
func.func private @f.jvp(tensor<f32>, tensor<i32>, tensor<f64>, tensor<f32>, tensor<f64>) -> (tensor<f32>, tensor<i32>, tensor<f32>)

// -----

func.func @custom_jvp_call_c4_all_zero(%x: tensor<f32>, %n: tensor<i32>, %y: tensor<f64>) -> tensor<f32> {
  // expected-error @+1 {{custom_jvp_call_c4: the mask of 'jvp.00' has one 0 or 1}}
  %0:2 = stablehlo.composite "pullback.custom_jvp_call" %x, %n, %y {
    composite_attributes = {jvp.00 = @f.jvp}, decomposition = @f
  } : (tensor<f32>, tensor<i32>, tensor<f64>) -> (tensor<f32>, tensor<i32>)
  return %0#0 : tensor<f32>
}
func.func private @f(%x: tensor<f32>, %n: tensor<i32>, %y: tensor<f64>) -> (tensor<f32>, tensor<i32>) {
  return %x, %n : tensor<f32>, tensor<i32>
}
func.func private @f.jvp(tensor<f32>, tensor<i32>, tensor<f64>, tensor<f32>, tensor<f64>) -> (tensor<f32>, tensor<i32>, tensor<f32>)

// -----

func.func @custom_jvp_call_c4_not_binary(%x: tensor<f32>, %n: tensor<i32>, %y: tensor<f64>) -> tensor<f32> {
  // expected-error @+1 {{custom_jvp_call_c4: the mask of 'transpose.0x' has one 0 or 1}}
  %0:2 = stablehlo.composite "pullback.custom_jvp_call" %x, %n, %y {
    composite_attributes = {transpose.0x = @f.jvp}, decomposition = @f
  } : (tensor<f32>, tensor<i32>, tensor<f64>) -> (tensor<f32>, tensor<i32>)
  return %0#0 : tensor<f32>
}
func.func private @f(%x: tensor<f32>, %n: tensor<i32>, %y: tensor<f64>) -> (tensor<f32>, tensor<i32>) {
  return %x, %n : tensor<f32>, tensor<i32>
}
func.func private @f.jvp(tensor<f32>, tensor<i32>, tensor<f64>, tensor<f32>, tensor<f64>) -> (tensor<f32>, tensor<i32>, tensor<f32>)

// -----

func.func @custom_jvp_call_c5(%x: tensor<f32>, %n: tensor<i32>, %y: tensor<f64>) -> tensor<f32> {
  // expected-error @+1 {{custom_jvp_call_c5: `jvp` and 'jvp.11' are the same rule}}
  %0:2 = stablehlo.composite "pullback.custom_jvp_call" %x, %n, %y {
    composite_attributes = {jvp = @f.jvp, jvp.11 = @f.jvp}, decomposition = @f
  } : (tensor<f32>, tensor<i32>, tensor<f64>) -> (tensor<f32>, tensor<i32>)
  return %0#0 : tensor<f32>
}
func.func private @f(%x: tensor<f32>, %n: tensor<i32>, %y: tensor<f64>) -> (tensor<f32>, tensor<i32>) {
  return %x, %n : tensor<f32>, tensor<i32>
}
func.func private @f.jvp(tensor<f32>, tensor<i32>, tensor<f64>, tensor<f32>, tensor<f64>) -> (tensor<f32>, tensor<i32>, tensor<f32>)

// -----

func.func @custom_jvp_call_c6(%x: tensor<f32>, %n: tensor<i32>, %y: tensor<f64>) -> tensor<f32> {
  // expected-error @+1 {{custom_jvp_call_c6: @f.jvp does not have the type that this op asks for}}
  %0:2 = stablehlo.composite "pullback.custom_jvp_call" %x, %n, %y {
    composite_attributes = {jvp = @f.jvp}, decomposition = @f
  } : (tensor<f32>, tensor<i32>, tensor<f64>) -> (tensor<f32>, tensor<i32>)
  return %0#0 : tensor<f32>
}
func.func private @f(%x: tensor<f32>, %n: tensor<i32>, %y: tensor<f64>) -> (tensor<f32>, tensor<i32>) {
  return %x, %n : tensor<f32>, tensor<i32>
}
func.func private @f.jvp(tensor<f32>, tensor<i32>, tensor<f64>, tensor<f32>) -> (tensor<f32>, tensor<i32>, tensor<f32>)

// -----

func.func @custom_jvp_call_c6_slot_for_an_integer(%x: tensor<f32>, %n: tensor<i32>, %y: tensor<f64>) -> tensor<f32> {
  // expected-error @+1 {{custom_jvp_call_c6: @f.jvp does not have the type that this op asks for}}
  %0:2 = stablehlo.composite "pullback.custom_jvp_call" %x, %n, %y {
    composite_attributes = {jvp = @f.jvp}, decomposition = @f
  } : (tensor<f32>, tensor<i32>, tensor<f64>) -> (tensor<f32>, tensor<i32>)
  return %0#0 : tensor<f32>
}
func.func private @f(%x: tensor<f32>, %n: tensor<i32>, %y: tensor<f64>) -> (tensor<f32>, tensor<i32>) {
  return %x, %n : tensor<f32>, tensor<i32>
}
func.func private @f.jvp(tensor<f32>, tensor<i32>, tensor<f64>, tensor<f32>, tensor<i32>, tensor<f64>) -> (tensor<f32>, tensor<i32>, tensor<f32>)

// -----

func.func @custom_jvp_call_c6_missing_tangent_result(%x: tensor<f32>, %n: tensor<i32>, %y: tensor<f64>) -> tensor<f32> {
  // expected-error @+1 {{custom_jvp_call_c6: @f.jvp does not have the type that this op asks for}}
  %0:2 = stablehlo.composite "pullback.custom_jvp_call" %x, %n, %y {
    composite_attributes = {jvp = @f.jvp}, decomposition = @f
  } : (tensor<f32>, tensor<i32>, tensor<f64>) -> (tensor<f32>, tensor<i32>)
  return %0#0 : tensor<f32>
}
func.func private @f(%x: tensor<f32>, %n: tensor<i32>, %y: tensor<f64>) -> (tensor<f32>, tensor<i32>) {
  return %x, %n : tensor<f32>, tensor<i32>
}
func.func private @f.jvp(tensor<f32>, tensor<i32>, tensor<f64>, tensor<f32>, tensor<f64>) -> (tensor<f32>, tensor<i32>)

// -----

func.func @custom_jvp_call_c7(%x: tensor<f32>, %n: tensor<i32>, %y: tensor<f64>) -> tensor<f32> {
  // expected-error @+1 {{custom_jvp_call_c7: @f.jvp does not have the type that this op asks for}}
  %0:2 = stablehlo.composite "pullback.custom_jvp_call" %x, %n, %y {
    composite_attributes = {jvp.01 = @f.jvp}, decomposition = @f
  } : (tensor<f32>, tensor<i32>, tensor<f64>) -> (tensor<f32>, tensor<i32>)
  return %0#0 : tensor<f32>
}
func.func private @f(%x: tensor<f32>, %n: tensor<i32>, %y: tensor<f64>) -> (tensor<f32>, tensor<i32>) {
  return %x, %n : tensor<f32>, tensor<i32>
}
func.func private @f.jvp(tensor<f32>, tensor<i32>, tensor<f64>, tensor<f32>, tensor<f64>) -> (tensor<f32>, tensor<i32>, tensor<f32>)

// -----

func.func @custom_jvp_call_c8(%x: tensor<f32>, %n: tensor<i32>, %y: tensor<f64>) -> tensor<f32> {
  // expected-error @+1 {{custom_jvp_call_c8: @f.jvp.01 does not have the type that this op asks for}}
  %0:2 = stablehlo.composite "pullback.custom_jvp_call" %x, %n, %y {
    composite_attributes = {jvp.01 = @f.jvp.01, transpose.01 = @f.jvp.01}, decomposition = @f
  } : (tensor<f32>, tensor<i32>, tensor<f64>) -> (tensor<f32>, tensor<i32>)
  return %0#0 : tensor<f32>
}
func.func private @f(%x: tensor<f32>, %n: tensor<i32>, %y: tensor<f64>) -> (tensor<f32>, tensor<i32>) {
  return %x, %n : tensor<f32>, tensor<i32>
}
func.func private @f.jvp.01(tensor<f32>, tensor<i32>, tensor<f64>, tensor<f64>) -> (tensor<f32>, tensor<i32>, tensor<f32>)

// -----

func.func @custom_jvp_call_c9(%x: tensor<f32>) -> tensor<f32> {
  // expected-error @+1 {{custom_jvp_call_c9: `refused` has 'jvp', which is no rule that is missing here}}
  %0 = stablehlo.composite "pullback.custom_jvp_call" %x {
    composite_attributes = {jvp = @f.jvp, refused = {jvp = "never"}}, decomposition = @f
  } : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
func.func private @f(%x: tensor<f32>) -> tensor<f32> {
  return %x : tensor<f32>
}
func.func private @f.jvp(tensor<f32>, tensor<f32>) -> (tensor<f32>, tensor<f32>)

// -----

func.func @custom_jvp_call_c9_mask(%x: tensor<f32>) -> tensor<f32> {
  // expected-error @+1 {{custom_jvp_call_c9: `refused` has 'transpose.10', which is no rule that is missing here}}
  %0 = stablehlo.composite "pullback.custom_jvp_call" %x {
    composite_attributes = {refused = {jvp = "never", transpose.10 = "never"}}, decomposition = @f
  } : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
func.func private @f(%x: tensor<f32>) -> tensor<f32> {
  return %x : tensor<f32>
}

// -----

func.func @custom_jvp_call_c2_refused(%x: tensor<f32>) -> tensor<f32> {
  // expected-error @+1 {{custom_jvp_call_c2: `refused` is a dictionary, not "jvp"}}
  %0 = stablehlo.composite "pullback.custom_jvp_call" %x {
    composite_attributes = {refused = "jvp"}, decomposition = @f
  } : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
func.func private @f(%x: tensor<f32>) -> tensor<f32> {
  return %x : tensor<f32>
}

// -----

func.func @custom_jvp_call_c2_closes_over_less_than_nothing(%x: tensor<f32>) -> tensor<f32> {
  // expected-error @+1 {{custom_jvp_call_c2: `closed_over` is -1, and there are 1 operands}}
  %0 = stablehlo.composite "pullback.custom_jvp_call" %x {
    composite_attributes = {closed_over = -1 : i64}, decomposition = @f
  } : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
func.func private @f(%x: tensor<f32>) -> tensor<f32> {
  return %x : tensor<f32>
}

// -----

func.func @custom_jvp_call_c2_closes_over_more_than_there_is(%x: tensor<f32>) -> tensor<f32> {
  // expected-error @+1 {{custom_jvp_call_c2: `closed_over` is 2, and there are 1 operands}}
  %0 = stablehlo.composite "pullback.custom_jvp_call" %x {
    composite_attributes = {closed_over = 2 : i64}, decomposition = @f
  } : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
func.func private @f(%x: tensor<f32>) -> tensor<f32> {
  return %x : tensor<f32>
}

// -----

func.func @custom_jvp_call_c4_closed_over(%x: tensor<f32>, %y: tensor<f32>) -> tensor<f32> {
  // expected-error @+1 {{custom_jvp_call_c4: 'jvp.11' is for an operand that is closed over}}
  %0 = stablehlo.composite "pullback.custom_jvp_call" %x, %y {
    composite_attributes = {closed_over = 1 : i64, jvp.11 = @f.jvp}, decomposition = @f
  } : (tensor<f32>, tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
func.func private @f(%x: tensor<f32>, %y: tensor<f32>) -> tensor<f32> {
  return %y : tensor<f32>
}
func.func private @f.jvp(tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) -> (tensor<f32>, tensor<f32>)

// -----

func.func @custom_jvp_call_c4_closed_over_unmasked(%x: tensor<f32>, %y: tensor<f32>) -> tensor<f32> {
  // expected-error @+1 {{custom_jvp_call_c4: 'jvp' is for an operand that is closed over}}
  %0 = stablehlo.composite "pullback.custom_jvp_call" %x, %y {
    composite_attributes = {closed_over = 1 : i64, jvp = @f.jvp}, decomposition = @f
  } : (tensor<f32>, tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}
func.func private @f(%x: tensor<f32>, %y: tensor<f32>) -> tensor<f32> {
  return %y : tensor<f32>
}
func.func private @f.jvp(tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) -> (tensor<f32>, tensor<f32>)
