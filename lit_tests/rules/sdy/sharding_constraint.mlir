// An annotation is put on tangents and cotangents too.
// RUN: pullback-opt %s -p "jvp{entry=f}" | filecheck %s --check-prefix=JVP
// RUN: pullback-opt %s -p "vjp{entry=f}" | filecheck %s --check-prefix=VJP

sdy.mesh @mesh = <["i"=2]>
func.func @f(%x: tensor<4xf64>) -> tensor<4xf64> {
  %0 = sdy.sharding_constraint %x <@mesh, [{"i"}]> : tensor<4xf64>
  return %0 : tensor<4xf64>
}

// JVP-LABEL: func.func @f
// JVP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[DX:.*]]: tensor<4xf64>)
// JVP: %[[SHARDING_CONSTRAINT:.*]] = sdy.sharding_constraint %[[X]] <@mesh, [{"i"}]>
// JVP: %[[SHARDING_CONSTRAINT_2:.*]] = sdy.sharding_constraint %[[DX]] <@mesh, [{"i"}]>
// JVP: return %[[SHARDING_CONSTRAINT]], %[[SHARDING_CONSTRAINT_2]]

// VJP-LABEL: func.func @f
// VJP-SAME: (%[[X:.*]]: tensor<4xf64>, %[[CT:.*]]: tensor<4xf64>)
// VJP: %[[SHARDING_CONSTRAINT:.*]] = sdy.sharding_constraint %[[X]] <@mesh, [{"i"}]>
// VJP: %[[SHARDING_CONSTRAINT_2:.*]] = sdy.sharding_constraint %[[CT]] <@mesh, [{"i"}]>
// VJP: return %[[SHARDING_CONSTRAINT]], %[[SHARDING_CONSTRAINT_2]]
