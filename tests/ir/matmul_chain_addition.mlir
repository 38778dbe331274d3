// rewrite matmul-chain
// (A B + C) v = A (B v) + C v.
func.func public @main(%arg0: tensor<8x2xf32>, %arg1: tensor<2x8xf32>, %arg2: tensor<8x8xf32>, %arg3: tensor<8xf32>) -> (tensor<8xf32>) {
  %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0] : (tensor<8x2xf32>, tensor<2x8xf32>) -> tensor<8x8xf32>
  %1 = stablehlo.add %0, %arg2 : tensor<8x8xf32>
  %2 = stablehlo.dot_general %1, %arg3, contracting_dims = [1] x [0] : (tensor<8x8xf32>, tensor<8xf32>) -> tensor<8xf32>
  return %2 : tensor<8xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<8x2xf32>, %arg1: tensor<2x8xf32>, %arg2: tensor<8x8xf32>, %arg3: tensor<8xf32>) -> tensor<8xf32> {
    %0 = stablehlo.dot_general %arg1, %arg3, contracting_dims = [1] x [0] : (tensor<2x8xf32>, tensor<8xf32>) -> tensor<2xf32>
    %1 = stablehlo.dot_general %arg0, %0, contracting_dims = [1] x [0] : (tensor<8x2xf32>, tensor<2xf32>) -> tensor<8xf32>
    %2 = stablehlo.dot_general %arg2, %arg3, contracting_dims = [1] x [0] : (tensor<8x8xf32>, tensor<8xf32>) -> tensor<8xf32>
    %3 = stablehlo.add %1, %2 : tensor<8xf32>
    return %3 : tensor<8xf32>
  }
}
