// rewrite pairwise-distance
// What the gradient of a kernel sums: w (x - y) over either side's points, and w (x - y)² over both.
func.func public @main(%x: tensor<8x3xf32>, %y: tensor<6x3xf32>, %w: tensor<8x6xf32>) -> (tensor<8x3xf32>, tensor<6x3xf32>, tensor<3xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %two = stablehlo.constant dense<2.0> : tensor<8x6x3xf32>
  %xs = stablehlo.broadcast_in_dim %x, dims = [0, 2] : (tensor<8x3xf32>) -> tensor<8x6x3xf32>
  %ys = stablehlo.broadcast_in_dim %y, dims = [1, 2] : (tensor<6x3xf32>) -> tensor<8x6x3xf32>
  %d = stablehlo.subtract %xs, %ys : tensor<8x6x3xf32>
  %d2 = stablehlo.multiply %two, %d : tensor<8x6x3xf32>
  %ws = stablehlo.broadcast_in_dim %w, dims = [0, 1] : (tensor<8x6xf32>) -> tensor<8x6x3xf32>
  %g = stablehlo.multiply %ws, %d2 : tensor<8x6x3xf32>
  %n = stablehlo.negate %g : tensor<8x6x3xf32>
  %s = stablehlo.multiply %g, %d : tensor<8x6x3xf32>
  %gx = stablehlo.reduce(%g init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<8x6x3xf32>, tensor<f32>) -> tensor<8x3xf32>
  %gy = stablehlo.reduce(%n init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<8x6x3xf32>, tensor<f32>) -> tensor<6x3xf32>
  %gl = stablehlo.reduce(%s init: %zero) applies stablehlo.add across dimensions = [0, 1] : (tensor<8x6x3xf32>, tensor<f32>) -> tensor<3xf32>
  return %gx, %gy, %gl : tensor<8x3xf32>, tensor<6x3xf32>, tensor<3xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<8x3xf32>, %arg1: tensor<6x3xf32>, %arg2: tensor<8x6xf32>) -> (tensor<8x3xf32>, tensor<6x3xf32>, tensor<3xf32>) {
    %cst = stablehlo.constant dense<2.000000e+00> : tensor<3xf32>
    %cst_0 = stablehlo.constant dense<-2.000000e+00> : tensor<6x3xf32>
    %cst_1 = stablehlo.constant dense<2.000000e+00> : tensor<8x3xf32>
    %cst_2 = stablehlo.constant dense<1.250000e-01> : tensor<8x3xf32>
    %cst_3 = stablehlo.constant dense<0.000000e+00> : tensor<8x3xf32>
    %cst_4 = stablehlo.constant dense<0.000000e+00> : tensor<3xf32>
    %cst_5 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.slice %arg0 [0:1, 0:3] : (tensor<8x3xf32>) -> tensor<1x3xf32>
    %1 = stablehlo.reshape %0 : (tensor<1x3xf32>) -> tensor<3xf32>
    %2 = stablehlo.is_finite %1 : (tensor<3xf32>) -> tensor<3xi1>
    %3 = stablehlo.select %2, %1, %cst_4 : tensor<3xi1>, tensor<3xf32>
    %4 = stablehlo.broadcast_in_dim %3, dims = [1] : (tensor<3xf32>) -> tensor<8x3xf32>
    %5 = stablehlo.subtract %arg0, %4 : tensor<8x3xf32>
    %6 = stablehlo.is_finite %5 : (tensor<8x3xf32>) -> tensor<8x3xi1>
    %7 = stablehlo.select %6, %5, %cst_3 : tensor<8x3xi1>, tensor<8x3xf32>
    %8 = stablehlo.multiply %7, %cst_2 : tensor<8x3xf32>
    %9 = stablehlo.reduce(%8 init: %cst_5) applies stablehlo.add across dimensions = [0] : (tensor<8x3xf32>, tensor<f32>) -> tensor<3xf32>
    %10 = stablehlo.add %3, %9 : tensor<3xf32>
    %11 = stablehlo.broadcast_in_dim %10, dims = [1] : (tensor<3xf32>) -> tensor<8x3xf32>
    %12 = stablehlo.subtract %arg0, %11 : tensor<8x3xf32>
    %13 = stablehlo.broadcast_in_dim %10, dims = [1] : (tensor<3xf32>) -> tensor<6x3xf32>
    %14 = stablehlo.subtract %arg1, %13 : tensor<6x3xf32>
    %15 = stablehlo.reduce(%arg2 init: %cst_5) applies stablehlo.add across dimensions = [1] : (tensor<8x6xf32>, tensor<f32>) -> tensor<8xf32>
    %16 = stablehlo.broadcast_in_dim %15, dims = [0] : (tensor<8xf32>) -> tensor<8x3xf32>
    %17 = stablehlo.multiply %16, %12 : tensor<8x3xf32>
    %18 = stablehlo.dot_general %arg2, %14, contracting_dims = [1] x [0], precision = [HIGHEST, HIGHEST] : (tensor<8x6xf32>, tensor<6x3xf32>) -> tensor<8x3xf32>
    %19 = stablehlo.subtract %17, %18 : tensor<8x3xf32>
    %20 = stablehlo.multiply %19, %cst_1 : tensor<8x3xf32>
    %21 = stablehlo.dot_general %arg2, %12, contracting_dims = [0] x [0], precision = [HIGHEST, HIGHEST] : (tensor<8x6xf32>, tensor<8x3xf32>) -> tensor<6x3xf32>
    %22 = stablehlo.reduce(%arg2 init: %cst_5) applies stablehlo.add across dimensions = [0] : (tensor<8x6xf32>, tensor<f32>) -> tensor<6xf32>
    %23 = stablehlo.broadcast_in_dim %22, dims = [0] : (tensor<6xf32>) -> tensor<6x3xf32>
    %24 = stablehlo.multiply %23, %14 : tensor<6x3xf32>
    %25 = stablehlo.subtract %21, %24 : tensor<6x3xf32>
    %26 = stablehlo.multiply %25, %cst_0 : tensor<6x3xf32>
    %27 = stablehlo.multiply %12, %12 : tensor<8x3xf32>
    %28 = stablehlo.dot_general %15, %27, contracting_dims = [0] x [0], precision = [HIGHEST, HIGHEST] : (tensor<8xf32>, tensor<8x3xf32>) -> tensor<3xf32>
    %29 = stablehlo.multiply %14, %14 : tensor<6x3xf32>
    %30 = stablehlo.dot_general %22, %29, contracting_dims = [0] x [0], precision = [HIGHEST, HIGHEST] : (tensor<6xf32>, tensor<6x3xf32>) -> tensor<3xf32>
    %31 = stablehlo.multiply %21, %14 : tensor<6x3xf32>
    %32 = stablehlo.reduce(%31 init: %cst_5) applies stablehlo.add across dimensions = [0] : (tensor<6x3xf32>, tensor<f32>) -> tensor<3xf32>
    %33 = stablehlo.add %28, %30 : tensor<3xf32>
    %34 = stablehlo.multiply %32, %cst : tensor<3xf32>
    %35 = stablehlo.subtract %33, %34 : tensor<3xf32>
    %36 = stablehlo.multiply %35, %cst : tensor<3xf32>
    return %20, %26, %36 : tensor<8x3xf32>, tensor<6x3xf32>, tensor<3xf32>
  }
}
