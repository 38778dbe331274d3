// rewrite matmul-chain
// A batch dimension stays one.
func.func public @main(%arg0: tensor<2x8x3xf32>, %arg1: tensor<2x3x8xf32>, %arg2: tensor<2x8x1xf32>) -> (tensor<2x8x1xf32>) {
  %0 = stablehlo.dot_general %arg1, %arg0, batching_dims = [0] x [0], contracting_dims = [1] x [2] : (tensor<2x3x8xf32>, tensor<2x8x3xf32>) -> tensor<2x8x8xf32>
  %1 = stablehlo.dot_general %0, %arg2, batching_dims = [0] x [0], contracting_dims = [1] x [1] : (tensor<2x8x8xf32>, tensor<2x8x1xf32>) -> tensor<2x8x1xf32>
  return %1 : tensor<2x8x1xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<2x8x3xf32>, %arg1: tensor<2x3x8xf32>, %arg2: tensor<2x8x1xf32>) -> tensor<2x8x1xf32> {
    %0 = stablehlo.reshape %arg2 : (tensor<2x8x1xf32>) -> tensor<2x8xf32>
    %1 = stablehlo.dot_general %arg1, %0, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<2x3x8xf32>, tensor<2x8xf32>) -> tensor<2x3xf32>
    %2 = stablehlo.dot_general %1, %arg0, batching_dims = [0] x [0], contracting_dims = [1] x [2] : (tensor<2x3xf32>, tensor<2x8x3xf32>) -> tensor<2x8xf32>
    %3 = stablehlo.reshape %2 : (tensor<2x8xf32>) -> tensor<2x8x1xf32>
    return %3 : tensor<2x8x1xf32>
  }
}
