// rewrite matmul-chain
// The same matrix nine times: it is multiplied once.
func.func public @main(%arg0: tensor<4x5xf32>, %arg1: tensor<5x7xf32>) -> (tensor<4x7xf32>) {
  %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
  %0 = stablehlo.broadcast_in_dim %arg0, dims = [1, 2] : (tensor<4x5xf32>) -> tensor<9x4x5xf32>
  %1 = stablehlo.dot_general %0, %arg1, contracting_dims = [2] x [0] : (tensor<9x4x5xf32>, tensor<5x7xf32>) -> tensor<9x4x7xf32>
  %2 = stablehlo.reduce(%1 init: %cst) applies stablehlo.add across dimensions = [0] : (tensor<9x4x7xf32>, tensor<f32>) -> tensor<4x7xf32>
  return %2 : tensor<4x7xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<4x5xf32>, %arg1: tensor<5x7xf32>) -> tensor<4x7xf32> {
    %cst = stablehlo.constant dense<9.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<4x5xf32>
    %1 = stablehlo.multiply %arg0, %0 : tensor<4x5xf32>
    %2 = stablehlo.dot_general %1, %arg1, contracting_dims = [1] x [0] : (tensor<4x5xf32>, tensor<5x7xf32>) -> tensor<4x7xf32>
    return %2 : tensor<4x7xf32>
  }
}
