// rewrite matmul-chain
// Only the diagonal of A B is needed.
func.func public @main(%arg0: tensor<8x3xf32>, %arg1: tensor<3x8xf32>) -> (tensor<f32>) {
  %c = stablehlo.constant dense<0> : tensor<i64>
  %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
  %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0] : (tensor<8x3xf32>, tensor<3x8xf32>) -> tensor<8x8xf32>
  %1 = stablehlo.iota dim = 0 : tensor<8x8xi64>
  %2 = stablehlo.iota dim = 1 : tensor<8x8xi64>
  %3 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i64>) -> tensor<8x8xi64>
  %4 = stablehlo.add %1, %3 : tensor<8x8xi64>
  %5 = stablehlo.compare EQ, %4, %2, SIGNED : (tensor<8x8xi64>, tensor<8x8xi64>) -> tensor<8x8xi1>
  %6 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<8x8xf32>
  %7 = stablehlo.select %5, %0, %6 : tensor<8x8xi1>, tensor<8x8xf32>
  %8 = stablehlo.reduce(%7 init: %cst) applies stablehlo.add across dimensions = [0, 1] : (tensor<8x8xf32>, tensor<f32>) -> tensor<f32>
  return %8 : tensor<f32>
}

// -----
module {
  func.func public @main(%arg0: tensor<8x3xf32>, %arg1: tensor<3x8xf32>) -> tensor<f32> {
    %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [0, 1] x [1, 0] : (tensor<8x3xf32>, tensor<3x8xf32>) -> tensor<f32>
    return %0 : tensor<f32>
  }
}
