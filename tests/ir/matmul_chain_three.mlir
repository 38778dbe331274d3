// rewrite matmul-chain
// As written 2*(9*2*9 + 9*9*2) FLOPs, here 2*(2*9*2 + 9*2*2).
func.func public @main(%arg0: tensor<9x2xf32>, %arg1: tensor<2x9xf32>, %arg2: tensor<9x2xf32>) -> (tensor<9x2xf32>) {
  %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0] : (tensor<9x2xf32>, tensor<2x9xf32>) -> tensor<9x9xf32>
  %1 = stablehlo.dot_general %0, %arg2, contracting_dims = [1] x [0] : (tensor<9x9xf32>, tensor<9x2xf32>) -> tensor<9x2xf32>
  return %1 : tensor<9x2xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<9x2xf32>, %arg1: tensor<2x9xf32>, %arg2: tensor<9x2xf32>) -> tensor<9x2xf32> {
    %0 = stablehlo.dot_general %arg1, %arg2, contracting_dims = [1] x [0] : (tensor<2x9xf32>, tensor<9x2xf32>) -> tensor<2x2xf32>
    %1 = stablehlo.dot_general %arg0, %0, contracting_dims = [1] x [0] : (tensor<9x2xf32>, tensor<2x2xf32>) -> tensor<9x2xf32>
    return %1 : tensor<9x2xf32>
  }
}
