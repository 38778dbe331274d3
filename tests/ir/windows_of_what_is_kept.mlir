// split multiply along 1 by 4
func.func public @main(%x: tensor<1x12x2xf32>, %k: tensor<3x2x2xf32>) -> tensor<1x12x2xf32> {
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %h = stablehlo.convolution(%x, %k) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {pad = [[1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x12x2xf32>, tensor<3x2x2xf32>) -> tensor<1x12x2xf32>
  %r = stablehlo.add %h, %x : tensor<1x12x2xf32>
  %m = stablehlo.reduce(%r init: %z) applies stablehlo.maximum across dimensions = [1] : (tensor<1x12x2xf32>, tensor<f32>) -> tensor<1x2xf32>
  %b = stablehlo.broadcast_in_dim %m, dims = [0, 2] : (tensor<1x2xf32>) -> tensor<1x12x2xf32>
  %n = stablehlo.multiply %r, %b : tensor<1x12x2xf32>
  %s = stablehlo.logistic %n : tensor<1x12x2xf32>
  %g = stablehlo.multiply %n, %s : tensor<1x12x2xf32>
  %y = stablehlo.convolution(%g, %k) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {pad = [[1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x12x2xf32>, tensor<3x2x2xf32>) -> tensor<1x12x2xf32>
  return %y : tensor<1x12x2xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<1x12x2xf32>, %arg1: tensor<3x2x2xf32>) -> tensor<1x12x2xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.convolution(%arg0, %arg1) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {pad = [[1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x12x2xf32>, tensor<3x2x2xf32>) -> tensor<1x12x2xf32>
    %1 = stablehlo.add %0, %arg0 : tensor<1x12x2xf32>
    %2 = stablehlo.reduce(%1 init: %cst) applies stablehlo.maximum across dimensions = [1] : (tensor<1x12x2xf32>, tensor<f32>) -> tensor<1x2xf32>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<1x12x2xf32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %3:2 = stablehlo.while(%iterArg = %c, %iterArg_1 = %cst_0) : tensor<i32>, tensor<1x12x2xf32>
    cond {
      %c_2 = stablehlo.constant dense<3> : tensor<i32>
      %4 = stablehlo.compare LT, %iterArg, %c_2 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %4 : tensor<i1>
    } do {
      %c_2 = stablehlo.constant dense<4> : tensor<i32>
      %4 = stablehlo.multiply %iterArg, %c_2 : tensor<i32>
      %c_3 = stablehlo.constant dense<1> : tensor<i32>
      %5 = stablehlo.subtract %4, %c_3 : tensor<i32>
      %c_4 = stablehlo.constant dense<6> : tensor<i32>
      %6 = stablehlo.minimum %5, %c_4 : tensor<i32>
      %c_5 = stablehlo.constant dense<0> : tensor<i32>
      %7 = stablehlo.maximum %6, %c_5 : tensor<i32>
      %8 = stablehlo.broadcast_in_dim %2, dims = [0, 2] : (tensor<1x2xf32>) -> tensor<1x6x2xf32>
      %c_6 = stablehlo.constant dense<0> : tensor<i32>
      %9 = stablehlo.dynamic_slice %1, %c_6, %7, %c_6, sizes = [1, 6, 2] : (tensor<1x12x2xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x6x2xf32>
      %10 = stablehlo.multiply %9, %8 : tensor<1x6x2xf32>
      %11 = stablehlo.logistic %10 : tensor<1x6x2xf32>
      %12 = stablehlo.multiply %10, %11 : tensor<1x6x2xf32>
      %cst_7 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
      %13 = stablehlo.pad %12, %cst_7, low = [0, 1, 0], high = [0, 1, 0], interior = [0, 0, 0] : (tensor<1x6x2xf32>, tensor<f32>) -> tensor<1x8x2xf32>
      %c_8 = stablehlo.constant dense<1> : tensor<i32>
      %14 = stablehlo.subtract %4, %c_8 : tensor<i32>
      %15 = stablehlo.subtract %14, %7 : tensor<i32>
      %c_9 = stablehlo.constant dense<1> : tensor<i32>
      %16 = stablehlo.add %15, %c_9 : tensor<i32>
      %c_10 = stablehlo.constant dense<0> : tensor<i32>
      %17 = stablehlo.dynamic_slice %13, %c_10, %16, %c_10, sizes = [1, 6, 2] : (tensor<1x8x2xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x6x2xf32>
      %18 = stablehlo.convolution(%17, %arg1) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {pad = [[0, 0]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x6x2xf32>, tensor<3x2x2xf32>) -> tensor<1x4x2xf32>
      %c_11 = stablehlo.constant dense<0> : tensor<i32>
      %19 = stablehlo.dynamic_update_slice %iterArg_1, %18, %c_11, %4, %c_11 : (tensor<1x12x2xf32>, tensor<1x4x2xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x12x2xf32>
      %c_12 = stablehlo.constant dense<1> : tensor<i32>
      %20 = stablehlo.add %iterArg, %c_12 : tensor<i32>
      stablehlo.return %20, %19 : tensor<i32>, tensor<1x12x2xf32>
    }
    return %3#1 : tensor<1x12x2xf32>
  }
}
