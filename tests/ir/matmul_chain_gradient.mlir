// rewrite matmul-chain
// A B is needed forward and backward, until neither needs it any more.
func.func public @main(%arg0: tensor<8x2xf32>, %arg1: tensor<2x8xf32>, %arg2: tensor<8xf32>) -> (tensor<8x2xf32>, tensor<8xf32>) {
  %cst = stablehlo.constant dense<1.000000e+00> : tensor<f32>
  %cst_0 = stablehlo.constant dense<2.000000e+00> : tensor<f32>
  %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0] : (tensor<8x2xf32>, tensor<2x8xf32>) -> tensor<8x8xf32>
  %1 = stablehlo.dot_general %0, %arg2, contracting_dims = [1] x [0] : (tensor<8x8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %2 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<8xf32>
  %3 = stablehlo.multiply %2, %1 : tensor<8xf32>
  %4 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<8xf32>
  %5 = stablehlo.multiply %4, %3 : tensor<8xf32>
  %6 = stablehlo.dot_general %5, %0, contracting_dims = [0] x [0] : (tensor<8xf32>, tensor<8x8xf32>) -> tensor<8xf32>
  %7 = stablehlo.dot_general %5, %arg2, contracting_dims = [] x [] : (tensor<8xf32>, tensor<8xf32>) -> tensor<8x8xf32>
  %8 = stablehlo.dot_general %7, %arg1, contracting_dims = [1] x [1] : (tensor<8x8xf32>, tensor<2x8xf32>) -> tensor<8x2xf32>
  return %8, %6 : tensor<8x2xf32>, tensor<8xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<8x2xf32>, %arg1: tensor<2x8xf32>, %arg2: tensor<8xf32>) -> (tensor<8x2xf32>, tensor<8xf32>) {
    %cst = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %cst_0 = stablehlo.constant dense<2.000000e+00> : tensor<f32>
    %0 = stablehlo.dot_general %arg1, %arg2, contracting_dims = [1] x [0] : (tensor<2x8xf32>, tensor<8xf32>) -> tensor<2xf32>
    %1 = stablehlo.dot_general %arg0, %0, contracting_dims = [1] x [0] : (tensor<8x2xf32>, tensor<2xf32>) -> tensor<8xf32>
    %2 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<8xf32>
    %3 = stablehlo.multiply %2, %1 : tensor<8xf32>
    %4 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<8xf32>
    %5 = stablehlo.multiply %4, %3 : tensor<8xf32>
    %6 = stablehlo.dot_general %5, %arg0, contracting_dims = [0] x [0] : (tensor<8xf32>, tensor<8x2xf32>) -> tensor<2xf32>
    %7 = stablehlo.dot_general %6, %arg1, contracting_dims = [0] x [0] : (tensor<2xf32>, tensor<2x8xf32>) -> tensor<8xf32>
    %8 = stablehlo.dot_general %arg2, %arg1, contracting_dims = [0] x [1] : (tensor<8xf32>, tensor<2x8xf32>) -> tensor<2xf32>
    %9 = stablehlo.broadcast_in_dim %5, dims = [0] : (tensor<8xf32>) -> tensor<8x2xf32>
    %10 = stablehlo.broadcast_in_dim %8, dims = [1] : (tensor<2xf32>) -> tensor<8x2xf32>
    %11 = stablehlo.multiply %9, %10 : tensor<8x2xf32>
    return %11, %7 : tensor<8x2xf32>, tensor<8xf32>
  }
}
