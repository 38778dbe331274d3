// rewrite matmul-chain
// And wide ones wide.
func.func public @main(%arg0: tensor<8x2xf64>, %arg1: tensor<2x8xf64>, %arg2: tensor<8xf64>) -> (tensor<8xf64>) {
  %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0] : (tensor<8x2xf64>, tensor<2x8xf64>) -> tensor<8x8xf64>
  %1 = stablehlo.dot_general %0, %arg2, contracting_dims = [1] x [0] : (tensor<8x8xf64>, tensor<8xf64>) -> tensor<8xf64>
  return %1 : tensor<8xf64>
}

// -----
module {
  func.func public @main(%arg0: tensor<8x2xf64>, %arg1: tensor<2x8xf64>, %arg2: tensor<8xf64>) -> tensor<8xf64> {
    %0 = stablehlo.dot_general %arg1, %arg2, contracting_dims = [1] x [0] : (tensor<2x8xf64>, tensor<8xf64>) -> tensor<2xf64>
    %1 = stablehlo.dot_general %arg0, %0, contracting_dims = [1] x [0] : (tensor<8x2xf64>, tensor<2xf64>) -> tensor<8xf64>
    return %1 : tensor<8xf64>
  }
}
