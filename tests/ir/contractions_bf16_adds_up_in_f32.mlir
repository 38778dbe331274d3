// rewrite contractions
// JAX sums bf16 in f32: a matmul of bf16 into f32 has the exact products.
func.func public @main(%arg0: tensor<4x6xbf16>, %arg1: tensor<5x6xbf16>) -> (tensor<4x5xbf16>) {
  %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
  %0 = stablehlo.broadcast_in_dim %arg0, dims = [0, 2] : (tensor<4x6xbf16>) -> tensor<4x1x6xbf16>
  %1 = stablehlo.broadcast_in_dim %arg1, dims = [1, 2] : (tensor<5x6xbf16>) -> tensor<1x5x6xbf16>
  %2 = stablehlo.broadcast_in_dim %0, dims = [0, 1, 2] : (tensor<4x1x6xbf16>) -> tensor<4x5x6xbf16>
  %3 = stablehlo.broadcast_in_dim %1, dims = [0, 1, 2] : (tensor<1x5x6xbf16>) -> tensor<4x5x6xbf16>
  %4 = stablehlo.multiply %2, %3 : tensor<4x5x6xbf16>
  %5 = stablehlo.convert %4 : (tensor<4x5x6xbf16>) -> tensor<4x5x6xf32>
  %6 = stablehlo.reduce(%5 init: %cst) applies stablehlo.add across dimensions = [2] : (tensor<4x5x6xf32>, tensor<f32>) -> tensor<4x5xf32>
  %7 = stablehlo.convert %6 : (tensor<4x5xf32>) -> tensor<4x5xbf16>
  return %7 : tensor<4x5xbf16>
}

// -----
module {
  func.func public @main(%arg0: tensor<4x6xbf16>, %arg1: tensor<5x6xbf16>) -> tensor<4x5xbf16> {
    %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [1], precision = [HIGHEST, HIGHEST] : (tensor<4x6xbf16>, tensor<5x6xbf16>) -> tensor<4x5xf32>
    %1 = stablehlo.convert %0 : (tensor<4x5xf32>) -> tensor<4x5xbf16>
    return %1 : tensor<4x5xbf16>
  }
}
