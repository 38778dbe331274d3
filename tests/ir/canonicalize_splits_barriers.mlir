// canonicalize
// One barrier an operand; equal ones are not merged.
func.func public @main(%x: tensor<4xf32>, %y: tensor<8xf32>) -> (tensor<4xf32>, tensor<8xf32>) {
  %a, %b = stablehlo.optimization_barrier %x, %y : tensor<4xf32>, tensor<8xf32>
  return %a, %b : tensor<4xf32>, tensor<8xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<4xf32>, %arg1: tensor<8xf32>) -> (tensor<4xf32>, tensor<8xf32>) {
    %0 = stablehlo.optimization_barrier {barrier_group = 0 : i64} %arg0 : tensor<4xf32>
    %1 = stablehlo.optimization_barrier {barrier_group = 0 : i64} %arg1 : tensor<8xf32>
    return %0, %1 : tensor<4xf32>, tensor<8xf32>
  }
}
