// rewrite pairwise-distance
// Points among themselves: exactly 0 on the diagonal; elsewhere no less than the noise, since a square root follows.
func.func public @main(%x: tensor<8x3xf64>) -> tensor<8x8xf64> {
  %zero = stablehlo.constant dense<0.0> : tensor<f64>
  %xs = stablehlo.broadcast_in_dim %x, dims = [0, 2] : (tensor<8x3xf64>) -> tensor<8x8x3xf64>
  %ys = stablehlo.broadcast_in_dim %x, dims = [1, 2] : (tensor<8x3xf64>) -> tensor<8x8x3xf64>
  %d = stablehlo.subtract %xs, %ys : tensor<8x8x3xf64>
  %a = stablehlo.abs %d : tensor<8x8x3xf64>
  %d2 = chlo.square %a : tensor<8x8x3xf64> -> tensor<8x8x3xf64>
  %r = stablehlo.reduce(%d2 init: %zero) applies stablehlo.add across dimensions = [2] : (tensor<8x8x3xf64>, tensor<f64>) -> tensor<8x8xf64>
  %s = stablehlo.sqrt %r : tensor<8x8xf64>
  return %s : tensor<8x8xf64>
}

// -----
module {
  func.func public @main(%arg0: tensor<8x3xf64>) -> tensor<8x8xf64> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<8x8xf64>
    %cst_0 = stablehlo.constant dense<1.2727709569768379E-15> : tensor<8x8xf64>
    %cst_1 = stablehlo.constant dense<2.000000e+00> : tensor<8x8xf64>
    %cst_2 = stablehlo.constant dense<1.250000e-01> : tensor<8x3xf64>
    %cst_3 = stablehlo.constant dense<0.000000e+00> : tensor<8x3xf64>
    %cst_4 = stablehlo.constant dense<0.000000e+00> : tensor<3xf64>
    %cst_5 = stablehlo.constant dense<0.000000e+00> : tensor<f64>
    %0 = stablehlo.slice %arg0 [0:1, 0:3] : (tensor<8x3xf64>) -> tensor<1x3xf64>
    %1 = stablehlo.reshape %0 : (tensor<1x3xf64>) -> tensor<3xf64>
    %2 = stablehlo.is_finite %1 : (tensor<3xf64>) -> tensor<3xi1>
    %3 = stablehlo.select %2, %1, %cst_4 : tensor<3xi1>, tensor<3xf64>
    %4 = stablehlo.broadcast_in_dim %3, dims = [1] : (tensor<3xf64>) -> tensor<8x3xf64>
    %5 = stablehlo.subtract %arg0, %4 : tensor<8x3xf64>
    %6 = stablehlo.is_finite %5 : (tensor<8x3xf64>) -> tensor<8x3xi1>
    %7 = stablehlo.select %6, %5, %cst_3 : tensor<8x3xi1>, tensor<8x3xf64>
    %8 = stablehlo.multiply %7, %cst_2 : tensor<8x3xf64>
    %9 = stablehlo.reduce(%8 init: %cst_5) applies stablehlo.add across dimensions = [0] : (tensor<8x3xf64>, tensor<f64>) -> tensor<3xf64>
    %10 = stablehlo.add %3, %9 : tensor<3xf64>
    %11 = stablehlo.broadcast_in_dim %10, dims = [1] : (tensor<3xf64>) -> tensor<8x3xf64>
    %12 = stablehlo.subtract %arg0, %11 : tensor<8x3xf64>
    %13 = stablehlo.multiply %12, %12 : tensor<8x3xf64>
    %14 = stablehlo.reduce(%13 init: %cst_5) applies stablehlo.add across dimensions = [1] : (tensor<8x3xf64>, tensor<f64>) -> tensor<8xf64>
    %15 = stablehlo.broadcast_in_dim %14, dims = [0] : (tensor<8xf64>) -> tensor<8x8xf64>
    %16 = stablehlo.broadcast_in_dim %14, dims = [1] : (tensor<8xf64>) -> tensor<8x8xf64>
    %17 = stablehlo.dot_general %12, %12, contracting_dims = [1] x [1], precision = [HIGHEST, HIGHEST] : (tensor<8x3xf64>, tensor<8x3xf64>) -> tensor<8x8xf64>
    %18 = stablehlo.add %15, %16 : tensor<8x8xf64>
    %19 = stablehlo.multiply %17, %cst_1 : tensor<8x8xf64>
    %20 = stablehlo.subtract %18, %19 : tensor<8x8xf64>
    %21 = stablehlo.multiply %18, %cst_0 : tensor<8x8xf64>
    %22 = stablehlo.maximum %20, %21 : tensor<8x8xf64>
    %23 = stablehlo.iota dim = 0 : tensor<8x8xi32>
    %24 = stablehlo.iota dim = 1 : tensor<8x8xi32>
    %25 = stablehlo.compare EQ, %23, %24 : (tensor<8x8xi32>, tensor<8x8xi32>) -> tensor<8x8xi1>
    %26 = stablehlo.select %25, %cst, %22 : tensor<8x8xi1>, tensor<8x8xf64>
    %27 = stablehlo.is_finite %18 : (tensor<8x8xf64>) -> tensor<8x8xi1>
    %28 = stablehlo.select %27, %26, %18 : tensor<8x8xi1>, tensor<8x8xf64>
    %29 = stablehlo.sqrt %28 : tensor<8x8xf64>
    return %29 : tensor<8x8xf64>
  }
}
