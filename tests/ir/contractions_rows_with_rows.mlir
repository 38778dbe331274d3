// rewrite contractions
// Every row of x with every row of y: a matmul, in the highest precision.
func.func public @main(%arg0: tensor<4x5xf32>, %arg1: tensor<7x5xf32>) -> (tensor<4x7xf32>) {
  %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
  %0 = stablehlo.broadcast_in_dim %arg0, dims = [0, 2] : (tensor<4x5xf32>) -> tensor<4x1x5xf32>
  %1 = stablehlo.broadcast_in_dim %arg1, dims = [1, 2] : (tensor<7x5xf32>) -> tensor<1x7x5xf32>
  %2 = stablehlo.broadcast_in_dim %0, dims = [0, 1, 2] : (tensor<4x1x5xf32>) -> tensor<4x7x5xf32>
  %3 = stablehlo.broadcast_in_dim %1, dims = [0, 1, 2] : (tensor<1x7x5xf32>) -> tensor<4x7x5xf32>
  %4 = stablehlo.multiply %2, %3 : tensor<4x7x5xf32>
  %5 = stablehlo.reduce(%4 init: %cst) applies stablehlo.add across dimensions = [2] : (tensor<4x7x5xf32>, tensor<f32>) -> tensor<4x7xf32>
  return %5 : tensor<4x7xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<4x5xf32>, %arg1: tensor<7x5xf32>) -> tensor<4x7xf32> {
    %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [1], precision = [HIGHEST, HIGHEST] : (tensor<4x5xf32>, tensor<7x5xf32>) -> tensor<4x7xf32>
    return %0 : tensor<4x7xf32>
  }
}
