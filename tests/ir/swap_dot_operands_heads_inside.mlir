// rewrite swap-dot-operands
// Attention's last product as einsum writes it: both operands lie transposed, and the transpose after it is another.
func.func public @main(%p: tensor<2x3x8x6xf32>, %v: tensor<2x3x6x5xf32>) -> tensor<2x8x3x5xf32> {
  %0 = stablehlo.dot_general %v, %p, batching_dims = [0, 1] x [0, 1], contracting_dims = [2] x [3] : (tensor<2x3x6x5xf32>, tensor<2x3x8x6xf32>) -> tensor<2x3x5x8xf32>
  %1 = stablehlo.transpose %0, dims = [0, 3, 1, 2] : (tensor<2x3x5x8xf32>) -> tensor<2x8x3x5xf32>
  return %1 : tensor<2x8x3x5xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<2x3x8x6xf32>, %arg1: tensor<2x3x6x5xf32>) -> tensor<2x8x3x5xf32> {
    %0 = stablehlo.dot_general %arg0, %arg1, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [2] : (tensor<2x3x8x6xf32>, tensor<2x3x6x5xf32>) -> tensor<2x3x8x5xf32>
    %1 = stablehlo.transpose %0, dims = [0, 2, 1, 3] : (tensor<2x3x8x5xf32>) -> tensor<2x8x3x5xf32>
    return %1 : tensor<2x8x3x5xf32>
  }
}
