// canonicalize
// The factor rule that JAX puts on a custom call is part of the program.
func.func public @main(%x: tensor<3x4x4xf32>) -> tensor<3x4x4xf32> {
  %y = stablehlo.custom_call @mine(%x) {sdy.sharding_rule = #sdy.op_sharding_rule<([i, j, k])->([i, l, m]) {i=3, j=4, k=4, l=4, m=4} need_replication={j, k, l, m}, custom>} : (tensor<3x4x4xf32>) -> tensor<3x4x4xf32>
  %z = stablehlo.sine %y : tensor<3x4x4xf32>
  return %z : tensor<3x4x4xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<3x4x4xf32>) -> tensor<3x4x4xf32> {
    %0 = stablehlo.custom_call @mine(%arg0) {sdy.sharding_rule = #sdy.op_sharding_rule<([i, j, k])->([i, l, m]) {i=3, j=4, k=4, l=4, m=4} need_replication={j, k, l, m}, custom>} : (tensor<3x4x4xf32>) -> tensor<3x4x4xf32>
    %1 = stablehlo.sine %0 : tensor<3x4x4xf32>
    return %1 : tensor<3x4x4xf32>
  }
}
