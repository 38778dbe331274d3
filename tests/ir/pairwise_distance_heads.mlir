// rewrite pairwise-distance
// A shared batch dimension, two summed ones, axes in another order in each operand.
func.func public @main(%x: tensor<3x2x8x4xf32>, %y: tensor<4x6x2x3xf32>) -> tensor<2x6x8xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %xt = stablehlo.transpose %x, dims = [1, 0, 2, 3] : (tensor<3x2x8x4xf32>) -> tensor<2x3x8x4xf32>
  %xs = stablehlo.broadcast_in_dim %xt, dims = [0, 1, 3, 4] : (tensor<2x3x8x4xf32>) -> tensor<2x3x6x8x4xf32>
  %yt = stablehlo.transpose %y, dims = [2, 3, 1, 0] : (tensor<4x6x2x3xf32>) -> tensor<2x3x6x4xf32>
  %ys = stablehlo.broadcast_in_dim %yt, dims = [0, 1, 2, 4] : (tensor<2x3x6x4xf32>) -> tensor<2x3x6x8x4xf32>
  %d = stablehlo.subtract %xs, %ys : tensor<2x3x6x8x4xf32>
  %d2 = stablehlo.multiply %d, %d : tensor<2x3x6x8x4xf32>
  %r = stablehlo.reduce(%d2 init: %zero) applies stablehlo.add across dimensions = [1, 4] : (tensor<2x3x6x8x4xf32>, tensor<f32>) -> tensor<2x6x8xf32>
  return %r : tensor<2x6x8xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<3x2x8x4xf32>, %arg1: tensor<4x6x2x3xf32>) -> tensor<2x6x8xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<2x6x8xf32>
    %cst_0 = stablehlo.constant dense<2.000000e+00> : tensor<2x6x8xf32>
    %cst_1 = stablehlo.constant dense<1.250000e-01> : tensor<3x2x8x4xf32>
    %cst_2 = stablehlo.constant dense<0.000000e+00> : tensor<3x2x8x4xf32>
    %cst_3 = stablehlo.constant dense<0.000000e+00> : tensor<3x2x4xf32>
    %cst_4 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.slice %arg0 [0:3, 0:2, 0:1, 0:4] : (tensor<3x2x8x4xf32>) -> tensor<3x2x1x4xf32>
    %1 = stablehlo.reshape %0 : (tensor<3x2x1x4xf32>) -> tensor<3x2x4xf32>
    %2 = stablehlo.is_finite %1 : (tensor<3x2x4xf32>) -> tensor<3x2x4xi1>
    %3 = stablehlo.select %2, %1, %cst_3 : tensor<3x2x4xi1>, tensor<3x2x4xf32>
    %4 = stablehlo.broadcast_in_dim %3, dims = [0, 1, 3] : (tensor<3x2x4xf32>) -> tensor<3x2x8x4xf32>
    %5 = stablehlo.subtract %arg0, %4 : tensor<3x2x8x4xf32>
    %6 = stablehlo.is_finite %5 : (tensor<3x2x8x4xf32>) -> tensor<3x2x8x4xi1>
    %7 = stablehlo.select %6, %5, %cst_2 : tensor<3x2x8x4xi1>, tensor<3x2x8x4xf32>
    %8 = stablehlo.multiply %7, %cst_1 : tensor<3x2x8x4xf32>
    %9 = stablehlo.reduce(%8 init: %cst_4) applies stablehlo.add across dimensions = [2] : (tensor<3x2x8x4xf32>, tensor<f32>) -> tensor<3x2x4xf32>
    %10 = stablehlo.add %3, %9 : tensor<3x2x4xf32>
    %11 = stablehlo.broadcast_in_dim %10, dims = [0, 1, 3] : (tensor<3x2x4xf32>) -> tensor<3x2x8x4xf32>
    %12 = stablehlo.subtract %arg0, %11 : tensor<3x2x8x4xf32>
    %13 = stablehlo.transpose %10, dims = [2, 1, 0] : (tensor<3x2x4xf32>) -> tensor<4x2x3xf32>
    %14 = stablehlo.broadcast_in_dim %13, dims = [0, 2, 3] : (tensor<4x2x3xf32>) -> tensor<4x6x2x3xf32>
    %15 = stablehlo.subtract %arg1, %14 : tensor<4x6x2x3xf32>
    %16 = stablehlo.multiply %12, %12 : tensor<3x2x8x4xf32>
    %17 = stablehlo.reduce(%16 init: %cst_4) applies stablehlo.add across dimensions = [0, 3] : (tensor<3x2x8x4xf32>, tensor<f32>) -> tensor<2x8xf32>
    %18 = stablehlo.broadcast_in_dim %17, dims = [0, 2] : (tensor<2x8xf32>) -> tensor<2x6x8xf32>
    %19 = stablehlo.multiply %15, %15 : tensor<4x6x2x3xf32>
    %20 = stablehlo.reduce(%19 init: %cst_4) applies stablehlo.add across dimensions = [0, 3] : (tensor<4x6x2x3xf32>, tensor<f32>) -> tensor<6x2xf32>
    %21 = stablehlo.transpose %20, dims = [1, 0] : (tensor<6x2xf32>) -> tensor<2x6xf32>
    %22 = stablehlo.broadcast_in_dim %21, dims = [0, 1] : (tensor<2x6xf32>) -> tensor<2x6x8xf32>
    %23 = stablehlo.dot_general %15, %12, batching_dims = [2] x [1], contracting_dims = [0, 3] x [3, 0], precision = [HIGHEST, HIGHEST] : (tensor<4x6x2x3xf32>, tensor<3x2x8x4xf32>) -> tensor<2x6x8xf32>
    %24 = stablehlo.add %18, %22 : tensor<2x6x8xf32>
    %25 = stablehlo.multiply %23, %cst_0 : tensor<2x6x8xf32>
    %26 = stablehlo.subtract %24, %25 : tensor<2x6x8xf32>
    %27 = stablehlo.maximum %26, %cst : tensor<2x6x8xf32>
    %28 = stablehlo.is_finite %24 : (tensor<2x6x8xf32>) -> tensor<2x6x8xi1>
    %29 = stablehlo.select %28, %27, %24 : tensor<2x6x8xi1>, tensor<2x6x8xf32>
    return %29 : tensor<2x6x8xf32>
  }
}
