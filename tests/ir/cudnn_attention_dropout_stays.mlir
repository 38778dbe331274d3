// rewrite cudnn-attention
func.func public @main(%arg0: tensor<2x128x4x64xbf16>, %arg1: tensor<2x128x4x64xbf16>, %arg2: tensor<2x128x4x64xbf16>, %arg3: tensor<2x4x128x128xi1>) -> (tensor<2x128x4x64xbf16>) {
  %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
  %0 = stablehlo.dot_general %arg0, %arg1, batching_dims = [0, 2] x [0, 2], contracting_dims = [3] x [3] : (tensor<2x128x4x64xbf16>, tensor<2x128x4x64xbf16>) -> tensor<2x4x128x128xf32>
  %1 = stablehlo.exponential %0 : tensor<2x4x128x128xf32>
  %2 = stablehlo.reduce(%1 init: %cst) applies stablehlo.add across dimensions = [3] : (tensor<2x4x128x128xf32>, tensor<f32>) -> tensor<2x4x128xf32>
  %3 = stablehlo.broadcast_in_dim %2, dims = [0, 1, 2] : (tensor<2x4x128xf32>) -> tensor<2x4x128x1xf32>
  %4 = stablehlo.broadcast_in_dim %3, dims = [0, 1, 2, 3] : (tensor<2x4x128x1xf32>) -> tensor<2x4x128x128xf32>
  %5 = stablehlo.divide %1, %4 : tensor<2x4x128x128xf32>
  %6 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x4x128x128xf32>
  %7 = stablehlo.select %arg3, %5, %6 : tensor<2x4x128x128xi1>, tensor<2x4x128x128xf32>
  %8 = stablehlo.convert %7 : (tensor<2x4x128x128xf32>) -> tensor<2x4x128x128xbf16>
  %9 = stablehlo.dot_general %arg2, %8, batching_dims = [0, 2] x [0, 1], contracting_dims = [1] x [3] : (tensor<2x128x4x64xbf16>, tensor<2x4x128x128xbf16>) -> tensor<2x4x64x128xbf16>
  %10 = stablehlo.transpose %9, dims = [0, 3, 1, 2] : (tensor<2x4x64x128xbf16>) -> tensor<2x128x4x64xbf16>
  return %10 : tensor<2x128x4x64xbf16>
}

// -----
module {
  func.func public @main(%arg0: tensor<2x128x4x64xbf16>, %arg1: tensor<2x128x4x64xbf16>, %arg2: tensor<2x128x4x64xbf16>, %arg3: tensor<2x4x128x128xi1>) -> tensor<2x128x4x64xbf16> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.dot_general %arg0, %arg1, batching_dims = [0, 2] x [0, 2], contracting_dims = [3] x [3] : (tensor<2x128x4x64xbf16>, tensor<2x128x4x64xbf16>) -> tensor<2x4x128x128xf32>
    %1 = stablehlo.exponential %0 : tensor<2x4x128x128xf32>
    %2 = stablehlo.reduce(%1 init: %cst) applies stablehlo.add across dimensions = [3] : (tensor<2x4x128x128xf32>, tensor<f32>) -> tensor<2x4x128xf32>
    %3 = stablehlo.broadcast_in_dim %2, dims = [0, 1, 2] : (tensor<2x4x128xf32>) -> tensor<2x4x128x1xf32>
    %4 = stablehlo.broadcast_in_dim %3, dims = [0, 1, 2, 3] : (tensor<2x4x128x1xf32>) -> tensor<2x4x128x128xf32>
    %5 = stablehlo.divide %1, %4 : tensor<2x4x128x128xf32>
    %6 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x4x128x128xf32>
    %7 = stablehlo.select %arg3, %5, %6 : tensor<2x4x128x128xi1>, tensor<2x4x128x128xf32>
    %8 = stablehlo.convert %7 : (tensor<2x4x128x128xf32>) -> tensor<2x4x128x128xbf16>
    %9 = stablehlo.dot_general %arg2, %8, batching_dims = [0, 2] x [0, 1], contracting_dims = [1] x [3] : (tensor<2x128x4x64xbf16>, tensor<2x4x128x128xbf16>) -> tensor<2x4x64x128xbf16>
    %10 = stablehlo.transpose %9, dims = [0, 3, 1, 2] : (tensor<2x4x64x128xbf16>) -> tensor<2x128x4x64xbf16>
    return %10 : tensor<2x128x4x64xbf16>
  }
}
