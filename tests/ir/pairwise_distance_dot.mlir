// rewrite pairwise-distance
// A difference contracted with itself, as vmap makes it of dot(a - b, a - b); bf16 is summed in f32.
func.func public @main(%x: tensor<8x3xbf16>, %y: tensor<6x3xbf16>) -> tensor<8x6xbf16> {
  %xs = stablehlo.broadcast_in_dim %x, dims = [0, 2] : (tensor<8x3xbf16>) -> tensor<8x6x3xbf16>
  %ys = stablehlo.broadcast_in_dim %y, dims = [1, 2] : (tensor<6x3xbf16>) -> tensor<8x6x3xbf16>
  %d = stablehlo.subtract %xs, %ys : tensor<8x6x3xbf16>
  %r = stablehlo.dot_general %d, %d, batching_dims = [0, 1] x [0, 1], contracting_dims = [2] x [2] : (tensor<8x6x3xbf16>, tensor<8x6x3xbf16>) -> tensor<8x6xbf16>
  return %r : tensor<8x6xbf16>
}

// -----
module {
  func.func public @main(%arg0: tensor<8x3xbf16>, %arg1: tensor<6x3xbf16>) -> tensor<8x6xbf16> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<8x6xf32>
    %cst_0 = stablehlo.constant dense<2.000000e+00> : tensor<8x6xf32>
    %cst_1 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %cst_2 = stablehlo.constant dense<1.250000e-01> : tensor<8x3xf32>
    %cst_3 = stablehlo.constant dense<0.000000e+00> : tensor<8x3xf32>
    %cst_4 = stablehlo.constant dense<0.000000e+00> : tensor<3xf32>
    %0 = stablehlo.convert %arg0 : (tensor<8x3xbf16>) -> tensor<8x3xf32>
    %1 = stablehlo.slice %0 [0:1, 0:3] : (tensor<8x3xf32>) -> tensor<1x3xf32>
    %2 = stablehlo.reshape %1 : (tensor<1x3xf32>) -> tensor<3xf32>
    %3 = stablehlo.is_finite %2 : (tensor<3xf32>) -> tensor<3xi1>
    %4 = stablehlo.select %3, %2, %cst_4 : tensor<3xi1>, tensor<3xf32>
    %5 = stablehlo.broadcast_in_dim %4, dims = [1] : (tensor<3xf32>) -> tensor<8x3xf32>
    %6 = stablehlo.subtract %0, %5 : tensor<8x3xf32>
    %7 = stablehlo.is_finite %6 : (tensor<8x3xf32>) -> tensor<8x3xi1>
    %8 = stablehlo.select %7, %6, %cst_3 : tensor<8x3xi1>, tensor<8x3xf32>
    %9 = stablehlo.multiply %8, %cst_2 : tensor<8x3xf32>
    %10 = stablehlo.reduce(%9 init: %cst_1) applies stablehlo.add across dimensions = [0] : (tensor<8x3xf32>, tensor<f32>) -> tensor<3xf32>
    %11 = stablehlo.add %4, %10 : tensor<3xf32>
    %12 = stablehlo.broadcast_in_dim %11, dims = [1] : (tensor<3xf32>) -> tensor<8x3xf32>
    %13 = stablehlo.subtract %0, %12 : tensor<8x3xf32>
    %14 = stablehlo.convert %arg1 : (tensor<6x3xbf16>) -> tensor<6x3xf32>
    %15 = stablehlo.broadcast_in_dim %11, dims = [1] : (tensor<3xf32>) -> tensor<6x3xf32>
    %16 = stablehlo.subtract %14, %15 : tensor<6x3xf32>
    %17 = stablehlo.multiply %13, %13 : tensor<8x3xf32>
    %18 = stablehlo.reduce(%17 init: %cst_1) applies stablehlo.add across dimensions = [1] : (tensor<8x3xf32>, tensor<f32>) -> tensor<8xf32>
    %19 = stablehlo.broadcast_in_dim %18, dims = [0] : (tensor<8xf32>) -> tensor<8x6xf32>
    %20 = stablehlo.multiply %16, %16 : tensor<6x3xf32>
    %21 = stablehlo.reduce(%20 init: %cst_1) applies stablehlo.add across dimensions = [1] : (tensor<6x3xf32>, tensor<f32>) -> tensor<6xf32>
    %22 = stablehlo.broadcast_in_dim %21, dims = [1] : (tensor<6xf32>) -> tensor<8x6xf32>
    %23 = stablehlo.dot_general %13, %16, contracting_dims = [1] x [1], precision = [HIGHEST, HIGHEST] : (tensor<8x3xf32>, tensor<6x3xf32>) -> tensor<8x6xf32>
    %24 = stablehlo.add %19, %22 : tensor<8x6xf32>
    %25 = stablehlo.multiply %23, %cst_0 : tensor<8x6xf32>
    %26 = stablehlo.subtract %24, %25 : tensor<8x6xf32>
    %27 = stablehlo.maximum %26, %cst : tensor<8x6xf32>
    %28 = stablehlo.is_finite %24 : (tensor<8x6xf32>) -> tensor<8x6xi1>
    %29 = stablehlo.select %28, %27, %24 : tensor<8x6xi1>, tensor<8x6xf32>
    %30 = stablehlo.convert %29 : (tensor<8x6xf32>) -> tensor<8x6xbf16>
    return %30 : tensor<8x6xbf16>
  }
}
