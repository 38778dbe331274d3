// rewrite matmul-chain
// The same as matmul_chain_bytes_first, the other way round.
func.func public @main(%arg0: tensor<3x2xf32>, %arg1: tensor<2x10xf32>, %arg2: tensor<10x50xf32>) -> (tensor<3x50xf32>) {
  %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0] : (tensor<3x2xf32>, tensor<2x10xf32>) -> tensor<3x10xf32>
  %1 = stablehlo.dot_general %0, %arg2, contracting_dims = [1] x [0] : (tensor<3x10xf32>, tensor<10x50xf32>) -> tensor<3x50xf32>
  return %1 : tensor<3x50xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<3x2xf32>, %arg1: tensor<2x10xf32>, %arg2: tensor<10x50xf32>) -> tensor<3x50xf32> {
    %0 = stablehlo.dot_general %arg1, %arg2, contracting_dims = [1] x [0] : (tensor<2x10xf32>, tensor<10x50xf32>) -> tensor<2x50xf32>
    %1 = stablehlo.dot_general %arg0, %0, contracting_dims = [1] x [0] : (tensor<3x2xf32>, tensor<2x50xf32>) -> tensor<3x50xf32>
    return %1 : tensor<3x50xf32>
  }
}
