// rewrite matmul-chain bytes first
// The result is needed too: going without it would only take longer.
func.func public @main(%arg0: tensor<8x7xf32>, %arg1: tensor<7x8xf32>, %arg2: tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<8x8xf32>) {
  %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0] : (tensor<8x7xf32>, tensor<7x8xf32>) -> tensor<8x8xf32>
  %1 = stablehlo.dot_general %0, %arg2, contracting_dims = [1] x [0] : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  return %1, %0 : tensor<8x8xf32>, tensor<8x8xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<8x7xf32>, %arg1: tensor<7x8xf32>, %arg2: tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<8x8xf32>) {
    %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0] : (tensor<8x7xf32>, tensor<7x8xf32>) -> tensor<8x8xf32>
    %1 = stablehlo.dot_general %0, %arg2, contracting_dims = [1] x [0] : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
    return %1, %0 : tensor<8x8xf32>, tensor<8x8xf32>
  }
}
