// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%x: tensor<4xf64>) -> tensor<4xf64> {
  %0 = stablehlo.rsqrt %x : tensor<4xf64>
  return %0 : tensor<4xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[DX:.*]]: tensor<4xf64>)
// JVP: %[[RSQRT:.*]] = stablehlo.rsqrt %[[X]]
// JVP: %[[C:.*]] = stablehlo.constant dense<-5.000000e-01>
// JVP: %[[ABS:.*]] = stablehlo.abs %[[RSQRT]]
// JVP: %[[HALF:.*]] = stablehlo.multiply %[[C]], %[[ABS]]
// JVP: %[[SQUARE:.*]] = stablehlo.multiply %[[RSQRT]], %[[RSQRT]]
// JVP: %[[CUBE:.*]] = stablehlo.multiply %[[HALF]], %[[SQUARE]]
// JVP: %[[PRODUCT:.*]] = stablehlo.multiply %[[DX]], %[[CUBE]]
// JVP: return %[[RSQRT]], %[[PRODUCT]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[CT:.*]]: tensor<4xf64>)
// VJP: %[[RSQRT:.*]] = stablehlo.rsqrt %[[X]]
// VJP: %[[C:.*]] = stablehlo.constant dense<-5.000000e-01>
// VJP: %[[ABS:.*]] = stablehlo.abs %[[RSQRT]]
// VJP: %[[HALF:.*]] = stablehlo.multiply %[[C]], %[[ABS]]
// VJP: %[[SQUARE:.*]] = stablehlo.multiply %[[RSQRT]], %[[RSQRT]]
// VJP: %[[CUBE:.*]] = stablehlo.multiply %[[HALF]], %[[SQUARE]]
// VJP: %[[PRODUCT:.*]] = stablehlo.multiply %[[CT]], %[[CUBE]]
// VJP: return %[[RSQRT]], %[[PRODUCT]]
