// rewrite contractions
// Scalings stay, where they take the fewest elements.
func.func public @main(%arg0: tensor<4x5xf32>, %arg1: tensor<7x5xf32>) -> (tensor<4xf32>) {
  %cst = stablehlo.constant dense<3.500000e+01> : tensor<f32>
  %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
  %0 = stablehlo.broadcast_in_dim %arg0, dims = [0, 2] : (tensor<4x5xf32>) -> tensor<4x1x5xf32>
  %1 = stablehlo.broadcast_in_dim %arg1, dims = [1, 2] : (tensor<7x5xf32>) -> tensor<1x7x5xf32>
  %2 = stablehlo.broadcast_in_dim %0, dims = [0, 1, 2] : (tensor<4x1x5xf32>) -> tensor<4x7x5xf32>
  %3 = stablehlo.broadcast_in_dim %1, dims = [0, 1, 2] : (tensor<1x7x5xf32>) -> tensor<4x7x5xf32>
  %4 = stablehlo.multiply %2, %3 : tensor<4x7x5xf32>
  %5 = stablehlo.reduce(%4 init: %cst_0) applies stablehlo.add across dimensions = [1, 2] : (tensor<4x7x5xf32>, tensor<f32>) -> tensor<4xf32>
  %6 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<4xf32>
  %7 = stablehlo.divide %5, %6 : tensor<4xf32>
  return %7 : tensor<4xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<4x5xf32>, %arg1: tensor<7x5xf32>) -> tensor<4xf32> {
    %cst = stablehlo.constant dense<3.500000e+01> : tensor<f32>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.reduce(%arg1 init: %cst_0) applies stablehlo.add across dimensions = [0] : (tensor<7x5xf32>, tensor<f32>) -> tensor<5xf32>
    %1 = stablehlo.dot_general %arg0, %0, contracting_dims = [1] x [0], precision = [HIGHEST, HIGHEST] : (tensor<4x5xf32>, tensor<5xf32>) -> tensor<4xf32>
    %2 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<4xf32>
    %3 = stablehlo.divide %1, %2 : tensor<4xf32>
    return %3 : tensor<4xf32>
  }
}
