// rewrite pallas-attention
func.func public @main(%arg0: tensor<2x128x4x64xbf16>, %arg1: tensor<2x128x4x64xbf16>, %arg2: tensor<2x128x4x64xbf16>, %arg3: tensor<4x128x128xf32>) -> (tensor<2x128x4x64xbf16>) {
  %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
  %0 = stablehlo.dot_general %arg0, %arg1, batching_dims = [0, 2] x [0, 2], contracting_dims = [3] x [3] : (tensor<2x128x4x64xbf16>, tensor<2x128x4x64xbf16>) -> tensor<2x4x128x128xf32>
  %1 = stablehlo.broadcast_in_dim %arg3, dims = [1, 2, 3] : (tensor<4x128x128xf32>) -> tensor<1x4x128x128xf32>
  %2 = stablehlo.broadcast_in_dim %1, dims = [0, 1, 2, 3] : (tensor<1x4x128x128xf32>) -> tensor<2x4x128x128xf32>
  %3 = stablehlo.add %0, %2 : tensor<2x4x128x128xf32>
  %4 = stablehlo.exponential %3 : tensor<2x4x128x128xf32>
  %5 = stablehlo.reduce(%4 init: %cst) applies stablehlo.add across dimensions = [3] : (tensor<2x4x128x128xf32>, tensor<f32>) -> tensor<2x4x128xf32>
  %6 = stablehlo.broadcast_in_dim %5, dims = [0, 1, 2] : (tensor<2x4x128xf32>) -> tensor<2x4x128x1xf32>
  %7 = stablehlo.broadcast_in_dim %6, dims = [0, 1, 2, 3] : (tensor<2x4x128x1xf32>) -> tensor<2x4x128x128xf32>
  %8 = stablehlo.divide %4, %7 : tensor<2x4x128x128xf32>
  %9 = stablehlo.convert %8 : (tensor<2x4x128x128xf32>) -> tensor<2x4x128x128xbf16>
  %10 = stablehlo.dot_general %arg2, %9, batching_dims = [0, 2] x [0, 1], contracting_dims = [1] x [3] : (tensor<2x128x4x64xbf16>, tensor<2x4x128x128xbf16>) -> tensor<2x4x64x128xbf16>
  %11 = stablehlo.transpose %10, dims = [0, 3, 1, 2] : (tensor<2x4x64x128xbf16>) -> tensor<2x128x4x64xbf16>
  return %11 : tensor<2x128x4x64xbf16>
}

// -----
module {
  func.func public @main(%arg0: tensor<2x128x4x64xbf16>, %arg1: tensor<2x128x4x64xbf16>, %arg2: tensor<2x128x4x64xbf16>, %arg3: tensor<4x128x128xf32>) -> tensor<2x128x4x64xbf16> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.dot_general %arg0, %arg1, batching_dims = [0, 2] x [0, 2], contracting_dims = [3] x [3] : (tensor<2x128x4x64xbf16>, tensor<2x128x4x64xbf16>) -> tensor<2x4x128x128xf32>
    %1 = stablehlo.broadcast_in_dim %arg3, dims = [1, 2, 3] : (tensor<4x128x128xf32>) -> tensor<1x4x128x128xf32>
    %2 = stablehlo.broadcast_in_dim %1, dims = [0, 1, 2, 3] : (tensor<1x4x128x128xf32>) -> tensor<2x4x128x128xf32>
    %3 = stablehlo.add %0, %2 : tensor<2x4x128x128xf32>
    %4 = stablehlo.exponential %3 : tensor<2x4x128x128xf32>
    %5 = stablehlo.reduce(%4 init: %cst) applies stablehlo.add across dimensions = [3] : (tensor<2x4x128x128xf32>, tensor<f32>) -> tensor<2x4x128xf32>
    %6 = stablehlo.broadcast_in_dim %5, dims = [0, 1, 2] : (tensor<2x4x128xf32>) -> tensor<2x4x128x1xf32>
    %7 = stablehlo.broadcast_in_dim %6, dims = [0, 1, 2, 3] : (tensor<2x4x128x1xf32>) -> tensor<2x4x128x128xf32>
    %8 = stablehlo.divide %4, %7 : tensor<2x4x128x128xf32>
    %9 = stablehlo.convert %8 : (tensor<2x4x128x128xf32>) -> tensor<2x4x128x128xbf16>
    %10 = stablehlo.dot_general %arg2, %9, batching_dims = [0, 2] x [0, 1], contracting_dims = [1] x [3] : (tensor<2x128x4x64xbf16>, tensor<2x4x128x128xbf16>) -> tensor<2x4x64x128xbf16>
    %11 = stablehlo.transpose %10, dims = [0, 3, 1, 2] : (tensor<2x4x64x128xbf16>) -> tensor<2x128x4x64xbf16>
    return %11 : tensor<2x128x4x64xbf16>
  }
}
