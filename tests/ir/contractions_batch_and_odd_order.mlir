// rewrite contractions
// Rank 4, a batch dimension both share, and the sum over a dimension in the middle.
func.func public @main(%arg0: tensor<2x3x5xf32>, %arg1: tensor<2x4x5xf32>) -> (tensor<4x2x3xf32>) {
  %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
  %0 = stablehlo.broadcast_in_dim %arg0, dims = [0, 1, 2] : (tensor<2x3x5xf32>) -> tensor<2x3x5x1xf32>
  %1 = stablehlo.transpose %arg1, dims = [0, 2, 1] : (tensor<2x4x5xf32>) -> tensor<2x5x4xf32>
  %2 = stablehlo.broadcast_in_dim %1, dims = [0, 2, 3] : (tensor<2x5x4xf32>) -> tensor<2x1x5x4xf32>
  %3 = stablehlo.broadcast_in_dim %0, dims = [0, 1, 2, 3] : (tensor<2x3x5x1xf32>) -> tensor<2x3x5x4xf32>
  %4 = stablehlo.broadcast_in_dim %2, dims = [0, 1, 2, 3] : (tensor<2x1x5x4xf32>) -> tensor<2x3x5x4xf32>
  %5 = stablehlo.multiply %3, %4 : tensor<2x3x5x4xf32>
  %6 = stablehlo.reduce(%5 init: %cst) applies stablehlo.add across dimensions = [2] : (tensor<2x3x5x4xf32>, tensor<f32>) -> tensor<2x3x4xf32>
  %7 = stablehlo.transpose %6, dims = [2, 0, 1] : (tensor<2x3x4xf32>) -> tensor<4x2x3xf32>
  return %7 : tensor<4x2x3xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<2x3x5xf32>, %arg1: tensor<2x4x5xf32>) -> tensor<4x2x3xf32> {
    %0 = stablehlo.dot_general %arg0, %arg1, batching_dims = [0] x [0], contracting_dims = [2] x [2], precision = [HIGHEST, HIGHEST] : (tensor<2x3x5xf32>, tensor<2x4x5xf32>) -> tensor<2x3x4xf32>
    %1 = stablehlo.transpose %0, dims = [2, 0, 1] : (tensor<2x3x4xf32>) -> tensor<4x2x3xf32>
    return %1 : tensor<4x2x3xf32>
  }
}
