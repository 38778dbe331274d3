// rewrite pairwise-distance
// Points by points: norms and one matmul, around a shift, at least 0.
func.func public @main(%x: tensor<8x3xf32>, %y: tensor<6x3xf32>) -> tensor<8x6xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %xs = stablehlo.broadcast_in_dim %x, dims = [0, 2] : (tensor<8x3xf32>) -> tensor<8x6x3xf32>
  %ys = stablehlo.broadcast_in_dim %y, dims = [1, 2] : (tensor<6x3xf32>) -> tensor<8x6x3xf32>
  %d = stablehlo.subtract %xs, %ys : tensor<8x6x3xf32>
  %d2 = stablehlo.multiply %d, %d : tensor<8x6x3xf32>
  %r = stablehlo.reduce(%d2 init: %zero) applies stablehlo.add across dimensions = [2] : (tensor<8x6x3xf32>, tensor<f32>) -> tensor<8x6xf32>
  return %r : tensor<8x6xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<8x3xf32>, %arg1: tensor<6x3xf32>) -> tensor<8x6xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<8x6xf32>
    %cst_0 = stablehlo.constant dense<2.000000e+00> : tensor<8x6xf32>
    %cst_1 = stablehlo.constant dense<1.250000e-01> : tensor<8x3xf32>
    %cst_2 = stablehlo.constant dense<0.000000e+00> : tensor<8x3xf32>
    %cst_3 = stablehlo.constant dense<0.000000e+00> : tensor<3xf32>
    %cst_4 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.slice %arg0 [0:1, 0:3] : (tensor<8x3xf32>) -> tensor<1x3xf32>
    %1 = stablehlo.reshape %0 : (tensor<1x3xf32>) -> tensor<3xf32>
    %2 = stablehlo.is_finite %1 : (tensor<3xf32>) -> tensor<3xi1>
    %3 = stablehlo.select %2, %1, %cst_3 : tensor<3xi1>, tensor<3xf32>
    %4 = stablehlo.broadcast_in_dim %3, dims = [1] : (tensor<3xf32>) -> tensor<8x3xf32>
    %5 = stablehlo.subtract %arg0, %4 : tensor<8x3xf32>
    %6 = stablehlo.is_finite %5 : (tensor<8x3xf32>) -> tensor<8x3xi1>
    %7 = stablehlo.select %6, %5, %cst_2 : tensor<8x3xi1>, tensor<8x3xf32>
    %8 = stablehlo.multiply %7, %cst_1 : tensor<8x3xf32>
    %9 = stablehlo.reduce(%8 init: %cst_4) applies stablehlo.add across dimensions = [0] : (tensor<8x3xf32>, tensor<f32>) -> tensor<3xf32>
    %10 = stablehlo.add %3, %9 : tensor<3xf32>
    %11 = stablehlo.broadcast_in_dim %10, dims = [1] : (tensor<3xf32>) -> tensor<8x3xf32>
    %12 = stablehlo.subtract %arg0, %11 : tensor<8x3xf32>
    %13 = stablehlo.broadcast_in_dim %10, dims = [1] : (tensor<3xf32>) -> tensor<6x3xf32>
    %14 = stablehlo.subtract %arg1, %13 : tensor<6x3xf32>
    %15 = stablehlo.multiply %12, %12 : tensor<8x3xf32>
    %16 = stablehlo.reduce(%15 init: %cst_4) applies stablehlo.add across dimensions = [1] : (tensor<8x3xf32>, tensor<f32>) -> tensor<8xf32>
    %17 = stablehlo.broadcast_in_dim %16, dims = [0] : (tensor<8xf32>) -> tensor<8x6xf32>
    %18 = stablehlo.multiply %14, %14 : tensor<6x3xf32>
    %19 = stablehlo.reduce(%18 init: %cst_4) applies stablehlo.add across dimensions = [1] : (tensor<6x3xf32>, tensor<f32>) -> tensor<6xf32>
    %20 = stablehlo.broadcast_in_dim %19, dims = [1] : (tensor<6xf32>) -> tensor<8x6xf32>
    %21 = stablehlo.dot_general %12, %14, contracting_dims = [1] x [1], precision = [HIGHEST, HIGHEST] : (tensor<8x3xf32>, tensor<6x3xf32>) -> tensor<8x6xf32>
    %22 = stablehlo.add %17, %20 : tensor<8x6xf32>
    %23 = stablehlo.multiply %21, %cst_0 : tensor<8x6xf32>
    %24 = stablehlo.subtract %22, %23 : tensor<8x6xf32>
    %25 = stablehlo.maximum %24, %cst : tensor<8x6xf32>
    %26 = stablehlo.is_finite %22 : (tensor<8x6xf32>) -> tensor<8x6xi1>
    %27 = stablehlo.select %26, %25, %22 : tensor<8x6xi1>, tensor<8x6xf32>
    return %27 : tensor<8x6xf32>
  }
}
