// rewrite contractions
// Three factors: the weights go to the smaller side.
func.func public @main(%arg0: tensor<4x5xf64>, %arg1: tensor<7x5xf64>, %arg2: tensor<5xf64>) -> (tensor<4x7xf64>) {
  %cst = stablehlo.constant dense<0.000000e+00> : tensor<f64>
  %0 = stablehlo.broadcast_in_dim %arg0, dims = [0, 2] : (tensor<4x5xf64>) -> tensor<4x1x5xf64>
  %1 = stablehlo.broadcast_in_dim %arg1, dims = [1, 2] : (tensor<7x5xf64>) -> tensor<1x7x5xf64>
  %2 = stablehlo.broadcast_in_dim %0, dims = [0, 1, 2] : (tensor<4x1x5xf64>) -> tensor<4x7x5xf64>
  %3 = stablehlo.broadcast_in_dim %1, dims = [0, 1, 2] : (tensor<1x7x5xf64>) -> tensor<4x7x5xf64>
  %4 = stablehlo.multiply %2, %3 : tensor<4x7x5xf64>
  %5 = stablehlo.broadcast_in_dim %arg2, dims = [2] : (tensor<5xf64>) -> tensor<1x1x5xf64>
  %6 = stablehlo.broadcast_in_dim %5, dims = [0, 1, 2] : (tensor<1x1x5xf64>) -> tensor<4x7x5xf64>
  %7 = stablehlo.multiply %4, %6 : tensor<4x7x5xf64>
  %8 = stablehlo.reduce(%7 init: %cst) applies stablehlo.add across dimensions = [2] : (tensor<4x7x5xf64>, tensor<f64>) -> tensor<4x7xf64>
  return %8 : tensor<4x7xf64>
}

// -----
module {
  func.func public @main(%arg0: tensor<4x5xf64>, %arg1: tensor<7x5xf64>, %arg2: tensor<5xf64>) -> tensor<4x7xf64> {
    %0 = stablehlo.broadcast_in_dim %arg2, dims = [1] : (tensor<5xf64>) -> tensor<4x5xf64>
    %1 = stablehlo.multiply %arg0, %0 : tensor<4x5xf64>
    %2 = stablehlo.dot_general %1, %arg1, contracting_dims = [1] x [1], precision = [HIGHEST, HIGHEST] : (tensor<4x5xf64>, tensor<7x5xf64>) -> tensor<4x7xf64>
    return %2 : tensor<4x7xf64>
  }
}
