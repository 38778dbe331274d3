// rewrite matmul-chain
// Narrow matmuls stay narrow.
func.func public @main(%arg0: tensor<8x2xbf16>, %arg1: tensor<2x8xbf16>, %arg2: tensor<8xbf16>) -> (tensor<8xbf16>) {
  %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0] : (tensor<8x2xbf16>, tensor<2x8xbf16>) -> tensor<8x8xbf16>
  %1 = stablehlo.dot_general %0, %arg2, contracting_dims = [1] x [0] : (tensor<8x8xbf16>, tensor<8xbf16>) -> tensor<8xbf16>
  return %1 : tensor<8xbf16>
}

// -----
module {
  func.func public @main(%arg0: tensor<8x2xbf16>, %arg1: tensor<2x8xbf16>, %arg2: tensor<8xbf16>) -> tensor<8xbf16> {
    %0 = stablehlo.dot_general %arg1, %arg2, contracting_dims = [1] x [0] : (tensor<2x8xbf16>, tensor<8xbf16>) -> tensor<2xbf16>
    %1 = stablehlo.dot_general %arg0, %0, contracting_dims = [1] x [0] : (tensor<8x2xbf16>, tensor<2xbf16>) -> tensor<8xbf16>
    return %1 : tensor<8xbf16>
  }
}
