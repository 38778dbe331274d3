// rewrite matmul-chain
// f16 overflows soon: the scaling stays on a factor of what it scaled.
func.func public @main(%arg0: tensor<8x2xf16>, %arg1: tensor<2x8xf16>, %arg2: tensor<8xf16>) -> (tensor<8xf16>) {
  %cst = stablehlo.constant dense<8.000000e+00> : tensor<f16>
  %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0] : (tensor<8x2xf16>, tensor<2x8xf16>) -> tensor<8x8xf16>
  %1 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f16>) -> tensor<8x8xf16>
  %2 = stablehlo.divide %0, %1 : tensor<8x8xf16>
  %3 = stablehlo.dot_general %2, %arg2, contracting_dims = [1] x [0] : (tensor<8x8xf16>, tensor<8xf16>) -> tensor<8xf16>
  return %3 : tensor<8xf16>
}

// -----
module {
  func.func public @main(%arg0: tensor<8x2xf16>, %arg1: tensor<2x8xf16>, %arg2: tensor<8xf16>) -> tensor<8xf16> {
    %cst = stablehlo.constant dense<8.000000e+00> : tensor<f16>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f16>) -> tensor<8x2xf16>
    %1 = stablehlo.divide %arg0, %0 : tensor<8x2xf16>
    %2 = stablehlo.dot_general %arg1, %arg2, contracting_dims = [1] x [0] : (tensor<2x8xf16>, tensor<8xf16>) -> tensor<2xf16>
    %3 = stablehlo.dot_general %1, %2, contracting_dims = [1] x [0] : (tensor<8x2xf16>, tensor<2xf16>) -> tensor<8xf16>
    return %3 : tensor<8xf16>
  }
}
