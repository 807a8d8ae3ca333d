// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

func.func @f(%low: tensor<f64>, %x: tensor<4xf64>, %high: tensor<f64>) -> tensor<4xf64> {
  %0 = stablehlo.clamp %low, %x, %high : (tensor<f64>, tensor<4xf64>, tensor<f64>) -> tensor<4xf64>
  return %0 : tensor<4xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[LOW:.*]]: {{.*}}, %[[X:.*]]: {{.*}}, %[[HIGH:.*]]: {{.*}}, %[[DLOW:.*]]: {{.*}}, %[[DX:.*]]: {{.*}}, %[[DHIGH:.*]]: {{.*}})
// JVP: %[[CLAMP:.*]] = stablehlo.clamp %[[LOW]], %[[X]], %[[HIGH]]
// JVP: %[[C:.*]] = stablehlo.constant dense<0.000000e+00>
// JVP: %[[BROADCAST_IN_DIM:.*]] = stablehlo.broadcast_in_dim %[[LOW]], dims = []
// JVP: %[[BROADCAST_IN_DIM1:.*]] = stablehlo.broadcast_in_dim %[[HIGH]], dims = []
// JVP: %[[COMPARE:.*]] = stablehlo.compare GT, %[[BROADCAST_IN_DIM]], %[[X]], FLOAT
// JVP: %[[COMPARE1:.*]] = stablehlo.compare LT, %[[BROADCAST_IN_DIM]], %[[BROADCAST_IN_DIM1]], FLOAT
// JVP: %[[AND:.*]] = stablehlo.and %[[COMPARE]], %[[COMPARE1]]
// JVP: %[[BROADCAST_IN_DIM2:.*]] = stablehlo.broadcast_in_dim %[[DLOW]], dims = []
// JVP: %[[SELECT:.*]] = stablehlo.select %[[AND]], %[[BROADCAST_IN_DIM2]], %[[C]]
// JVP: %[[COMPARE2:.*]] = stablehlo.compare GT, %[[X]], %[[BROADCAST_IN_DIM]], FLOAT
// JVP: %[[COMPARE3:.*]] = stablehlo.compare LT, %[[X]], %[[BROADCAST_IN_DIM1]], FLOAT
// JVP: %[[AND1:.*]] = stablehlo.and %[[COMPARE2]], %[[COMPARE3]]
// JVP: %[[SELECT1:.*]] = stablehlo.select %[[AND1]], %[[DX]], %[[C]]
// JVP: %[[ADD:.*]] = stablehlo.add %[[SELECT]], %[[SELECT1]]
// JVP: %[[MAXIMUM:.*]] = stablehlo.maximum %[[BROADCAST_IN_DIM]], %[[X]]
// JVP: %[[COMPARE4:.*]] = stablehlo.compare LT, %[[BROADCAST_IN_DIM1]], %[[MAXIMUM]], FLOAT
// JVP: %[[BROADCAST_IN_DIM3:.*]] = stablehlo.broadcast_in_dim %[[DHIGH]], dims = []
// JVP: %[[SELECT2:.*]] = stablehlo.select %[[COMPARE4]], %[[BROADCAST_IN_DIM3]], %[[C]]
// JVP: %[[ADD1:.*]] = stablehlo.add %[[ADD]], %[[SELECT2]]
// JVP: return %[[CLAMP]], %[[ADD1]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[LOW:.*]]: {{.*}}, %[[X:.*]]: {{.*}}, %[[HIGH:.*]]: {{.*}}, %[[CT:.*]]: {{.*}})
// VJP: %[[CLAMP:.*]] = stablehlo.clamp %[[LOW]], %[[X]], %[[HIGH]]
// VJP: %[[C:.*]] = stablehlo.constant dense<0.000000e+00>
// VJP: %[[C1:.*]] = stablehlo.constant dense<0.000000e+00>
// VJP: %[[BROADCAST_IN_DIM:.*]] = stablehlo.broadcast_in_dim %[[LOW]], dims = []
// VJP: %[[BROADCAST_IN_DIM1:.*]] = stablehlo.broadcast_in_dim %[[HIGH]], dims = []
// VJP: %[[COMPARE:.*]] = stablehlo.compare GT, %[[BROADCAST_IN_DIM]], %[[X]], FLOAT
// VJP: %[[COMPARE1:.*]] = stablehlo.compare LT, %[[BROADCAST_IN_DIM]], %[[BROADCAST_IN_DIM1]], FLOAT
// VJP: %[[AND:.*]] = stablehlo.and %[[COMPARE]], %[[COMPARE1]]
// VJP: %[[SELECT:.*]] = stablehlo.select %[[AND]], %[[CT]], %[[C]]
// VJP: %[[REDUCE:.*]] = stablehlo.reduce(%[[SELECT]] init: %[[C1]]) applies stablehlo.add across dimensions = [0]
// VJP: %[[COMPARE2:.*]] = stablehlo.compare GT, %[[X]], %[[BROADCAST_IN_DIM]], FLOAT
// VJP: %[[COMPARE3:.*]] = stablehlo.compare LT, %[[X]], %[[BROADCAST_IN_DIM1]], FLOAT
// VJP: %[[AND1:.*]] = stablehlo.and %[[COMPARE2]], %[[COMPARE3]]
// VJP: %[[SELECT1:.*]] = stablehlo.select %[[AND1]], %[[CT]], %[[C]]
// VJP: %[[MAXIMUM:.*]] = stablehlo.maximum %[[BROADCAST_IN_DIM]], %[[X]]
// VJP: %[[COMPARE4:.*]] = stablehlo.compare LT, %[[BROADCAST_IN_DIM1]], %[[MAXIMUM]], FLOAT
// VJP: %[[SELECT2:.*]] = stablehlo.select %[[COMPARE4]], %[[CT]], %[[C]]
// VJP: %[[REDUCE1:.*]] = stablehlo.reduce(%[[SELECT2]] init: %[[C1]]) applies stablehlo.add across dimensions = [0]
// VJP: return %[[CLAMP]], %[[REDUCE]], %[[SELECT1]], %[[REDUCE1]]
