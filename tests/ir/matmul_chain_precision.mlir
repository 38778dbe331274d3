// rewrite matmul-chain
// All matmuls of the chain have one precision: it is kept.
func.func public @main(%arg0: tensor<8x2xf32>, %arg1: tensor<2x8xf32>, %arg2: tensor<8xf32>) -> (tensor<8xf32>) {
  %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0], precision = [HIGH, HIGH] : (tensor<8x2xf32>, tensor<2x8xf32>) -> tensor<8x8xf32>
  %1 = stablehlo.dot_general %0, %arg2, contracting_dims = [1] x [0], precision = [HIGH, HIGH] : (tensor<8x8xf32>, tensor<8xf32>) -> tensor<8xf32>
  return %1 : tensor<8xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<8x2xf32>, %arg1: tensor<2x8xf32>, %arg2: tensor<8xf32>) -> tensor<8xf32> {
    %0 = stablehlo.dot_general %arg1, %arg2, contracting_dims = [1] x [0], precision = [HIGH, HIGH] : (tensor<2x8xf32>, tensor<8xf32>) -> tensor<2xf32>
    %1 = stablehlo.dot_general %arg0, %0, contracting_dims = [1] x [0], precision = [HIGH, HIGH] : (tensor<8x2xf32>, tensor<2xf32>) -> tensor<8xf32>
    return %1 : tensor<8xf32>
  }
}
