// rewrite matmul-chain
// diag(d) A scales the rows of A.
func.func public @main(%arg0: tensor<4x5xf32>, %arg1: tensor<4xf32>) -> (tensor<4x5xf32>) {
  %c = stablehlo.constant dense<0> : tensor<i64>
  %0 = stablehlo.iota dim = 0 : tensor<4x4xi64>
  %1 = stablehlo.iota dim = 1 : tensor<4x4xi64>
  %2 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i64>) -> tensor<4x4xi64>
  %3 = stablehlo.add %0, %2 : tensor<4x4xi64>
  %4 = stablehlo.compare EQ, %3, %1, SIGNED : (tensor<4x4xi64>, tensor<4x4xi64>) -> tensor<4x4xi1>
  %5 = stablehlo.broadcast_in_dim %arg1, dims = [0] : (tensor<4xf32>) -> tensor<4x1xf32>
  %6 = stablehlo.convert %c : (tensor<i64>) -> tensor<f32>
  %7 = stablehlo.broadcast_in_dim %5, dims = [0, 1] : (tensor<4x1xf32>) -> tensor<4x4xf32>
  %8 = stablehlo.broadcast_in_dim %6, dims = [] : (tensor<f32>) -> tensor<4x4xf32>
  %9 = stablehlo.select %4, %7, %8 : tensor<4x4xi1>, tensor<4x4xf32>
  %10 = stablehlo.dot_general %9, %arg0, contracting_dims = [1] x [0] : (tensor<4x4xf32>, tensor<4x5xf32>) -> tensor<4x5xf32>
  return %10 : tensor<4x5xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<4x5xf32>, %arg1: tensor<4xf32>) -> tensor<4x5xf32> {
    %0 = stablehlo.broadcast_in_dim %arg1, dims = [0] : (tensor<4xf32>) -> tensor<4x5xf32>
    %1 = stablehlo.multiply %0, %arg0 : tensor<4x5xf32>
    return %1 : tensor<4x5xf32>
  }
}
