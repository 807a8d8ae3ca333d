// With constant bounds: a slice.
// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<6xf64>) -> tensor<2xf64> {
  %start = stablehlo.constant dense<1> : tensor<1xi32>
  %limit = stablehlo.constant dense<5> : tensor<1xi32>
  %stride = stablehlo.constant dense<2> : tensor<1xi32>
  %0 = stablehlo.real_dynamic_slice %x, %start, %limit, %stride
    : (tensor<6xf64>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<2xf64>
  return %0 : tensor<2xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<6xf64>, %[[DX:.*]]: tensor<6xf64>)
// JVP: %[[C:.*]] = stablehlo.constant dense<1>
// JVP: %[[C_2:.*]] = stablehlo.constant dense<5>
// JVP: %[[C_3:.*]] = stablehlo.constant dense<2>
// JVP: %[[REAL_DYNAMIC_SLICE:.*]] = stablehlo.real_dynamic_slice %[[X]], %[[C]], %[[C_2]], %[[C_3]]
// JVP: %[[SLICE:.*]] = stablehlo.slice %[[X]] [1:5:2]
// JVP: %[[SLICE_2:.*]] = stablehlo.slice %[[DX]] [1:5:2]
// JVP: return %[[REAL_DYNAMIC_SLICE]], %[[SLICE_2]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<6xf64>, %[[CT:.*]]: tensor<2xf64>)
// VJP: %[[C:.*]] = stablehlo.constant dense<1>
// VJP: %[[C_2:.*]] = stablehlo.constant dense<5>
// VJP: %[[C_3:.*]] = stablehlo.constant dense<2>
// VJP: %[[REAL_DYNAMIC_SLICE:.*]] = stablehlo.real_dynamic_slice %[[X]], %[[C]], %[[C_2]], %[[C_3]]
// VJP: %[[C_4:.*]] = stablehlo.constant dense<0.000000e+00>
// VJP: %[[PAD:.*]] = stablehlo.pad %[[CT]], %[[C_4]], low = [1], high = [2], interior = [1]
// VJP: return %[[REAL_DYNAMIC_SLICE]], %[[PAD]]
