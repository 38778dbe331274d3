// rewrite matmul-chain
// A diagonal in between: (A * d) B v.
func.func public @main(%arg0: tensor<8x3xf32>, %arg1: tensor<3xf32>, %arg2: tensor<3x8xf32>, %arg3: tensor<8xf32>) -> (tensor<8xf32>) {
  %0 = stablehlo.broadcast_in_dim %arg1, dims = [1] : (tensor<3xf32>) -> tensor<1x3xf32>
  %1 = stablehlo.broadcast_in_dim %0, dims = [0, 1] : (tensor<1x3xf32>) -> tensor<8x3xf32>
  %2 = stablehlo.multiply %arg0, %1 : tensor<8x3xf32>
  %3 = stablehlo.dot_general %2, %arg2, contracting_dims = [1] x [0] : (tensor<8x3xf32>, tensor<3x8xf32>) -> tensor<8x8xf32>
  %4 = stablehlo.dot_general %3, %arg3, contracting_dims = [1] x [0] : (tensor<8x8xf32>, tensor<8xf32>) -> tensor<8xf32>
  return %4 : tensor<8xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<8x3xf32>, %arg1: tensor<3xf32>, %arg2: tensor<3x8xf32>, %arg3: tensor<8xf32>) -> tensor<8xf32> {
    %0 = stablehlo.dot_general %arg2, %arg3, contracting_dims = [1] x [0] : (tensor<3x8xf32>, tensor<8xf32>) -> tensor<3xf32>
    %1 = stablehlo.multiply %arg1, %0 : tensor<3xf32>
    %2 = stablehlo.dot_general %arg0, %1, contracting_dims = [1] x [0] : (tensor<8x3xf32>, tensor<3xf32>) -> tensor<8xf32>
    return %2 : tensor<8xf32>
  }
}
