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
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<1x12x2xf32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<1x2xf32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %1:3 = stablehlo.while(%iterArg = %c, %iterArg_3 = %cst_0, %iterArg_4 = %0) : tensor<i32>, tensor<1x12x2xf32>, tensor<1x2xf32>
    cond {
      %c_5 = stablehlo.constant dense<3> : tensor<i32>
      %3 = stablehlo.compare LT, %iterArg, %c_5 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %3 : tensor<i1>
    } do {
      %c_5 = stablehlo.constant dense<4> : tensor<i32>
      %3 = stablehlo.multiply %iterArg, %c_5 : tensor<i32>
      %c_6 = stablehlo.constant dense<1> : tensor<i32>
      %4 = stablehlo.subtract %3, %c_6 : tensor<i32>
      %c_7 = stablehlo.constant dense<6> : tensor<i32>
      %5 = stablehlo.minimum %4, %c_7 : tensor<i32>
      %c_8 = stablehlo.constant dense<0> : tensor<i32>
      %6 = stablehlo.maximum %5, %c_8 : tensor<i32>
      %c_9 = stablehlo.constant dense<0> : tensor<i32>
      %7 = stablehlo.dynamic_slice %arg0, %c_9, %6, %c_9, sizes = [1, 6, 2] : (tensor<1x12x2xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x6x2xf32>
      %cst_10 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
      %8 = stablehlo.pad %7, %cst_10, low = [0, 1, 0], high = [0, 1, 0], interior = [0, 0, 0] : (tensor<1x6x2xf32>, tensor<f32>) -> tensor<1x8x2xf32>
      %c_11 = stablehlo.constant dense<1> : tensor<i32>
      %9 = stablehlo.subtract %3, %c_11 : tensor<i32>
      %10 = stablehlo.subtract %9, %6 : tensor<i32>
      %c_12 = stablehlo.constant dense<1> : tensor<i32>
      %11 = stablehlo.add %10, %c_12 : tensor<i32>
      %c_13 = stablehlo.constant dense<0> : tensor<i32>
      %12 = stablehlo.dynamic_slice %8, %c_13, %11, %c_13, sizes = [1, 6, 2] : (tensor<1x8x2xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x6x2xf32>
      %13 = stablehlo.convolution(%12, %arg1) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {pad = [[0, 0]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x6x2xf32>, tensor<3x2x2xf32>) -> tensor<1x4x2xf32>
      %c_14 = stablehlo.constant dense<0> : tensor<i32>
      %14 = stablehlo.dynamic_slice %arg0, %c_14, %3, %c_14, sizes = [1, 4, 2] : (tensor<1x12x2xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x2xf32>
      %15 = stablehlo.add %13, %14 : tensor<1x4x2xf32>
      %16 = stablehlo.reduce(%15 init: %cst) applies stablehlo.maximum across dimensions = [1] : (tensor<1x4x2xf32>, tensor<f32>) -> tensor<1x2xf32>
      %c_15 = stablehlo.constant dense<0> : tensor<i32>
      %17 = stablehlo.dynamic_update_slice %iterArg_3, %15, %c_15, %3, %c_15 : (tensor<1x12x2xf32>, tensor<1x4x2xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x12x2xf32>
      %18 = stablehlo.maximum %iterArg_4, %16 : tensor<1x2xf32>
      %c_16 = stablehlo.constant dense<1> : tensor<i32>
      %19 = stablehlo.add %iterArg, %c_16 : tensor<i32>
      stablehlo.return %19, %17, %18 : tensor<i32>, tensor<1x12x2xf32>, tensor<1x2xf32>
    }
    %cst_1 = stablehlo.constant dense<0.000000e+00> : tensor<1x12x2xf32>
    %c_2 = stablehlo.constant dense<0> : tensor<i32>
    %2:2 = stablehlo.while(%iterArg = %c_2, %iterArg_3 = %cst_1) : tensor<i32>, tensor<1x12x2xf32>
    cond {
      %c_4 = stablehlo.constant dense<3> : tensor<i32>
      %3 = stablehlo.compare LT, %iterArg, %c_4 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %3 : tensor<i1>
    } do {
      %c_4 = stablehlo.constant dense<4> : tensor<i32>
      %3 = stablehlo.multiply %iterArg, %c_4 : tensor<i32>
      %c_5 = stablehlo.constant dense<1> : tensor<i32>
      %4 = stablehlo.subtract %3, %c_5 : tensor<i32>
      %c_6 = stablehlo.constant dense<6> : tensor<i32>
      %5 = stablehlo.minimum %4, %c_6 : tensor<i32>
      %c_7 = stablehlo.constant dense<0> : tensor<i32>
      %6 = stablehlo.maximum %5, %c_7 : tensor<i32>
      %7 = stablehlo.broadcast_in_dim %1#2, dims = [0, 2] : (tensor<1x2xf32>) -> tensor<1x6x2xf32>
      %c_8 = stablehlo.constant dense<0> : tensor<i32>
      %8 = stablehlo.dynamic_slice %1#1, %c_8, %6, %c_8, sizes = [1, 6, 2] : (tensor<1x12x2xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x6x2xf32>
      %9 = stablehlo.multiply %8, %7 : tensor<1x6x2xf32>
      %10 = stablehlo.logistic %9 : tensor<1x6x2xf32>
      %11 = stablehlo.multiply %9, %10 : tensor<1x6x2xf32>
      %cst_9 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
      %12 = stablehlo.pad %11, %cst_9, low = [0, 1, 0], high = [0, 1, 0], interior = [0, 0, 0] : (tensor<1x6x2xf32>, tensor<f32>) -> tensor<1x8x2xf32>
      %c_10 = stablehlo.constant dense<1> : tensor<i32>
      %13 = stablehlo.subtract %3, %c_10 : tensor<i32>
      %14 = stablehlo.subtract %13, %6 : tensor<i32>
      %c_11 = stablehlo.constant dense<1> : tensor<i32>
      %15 = stablehlo.add %14, %c_11 : tensor<i32>
      %c_12 = stablehlo.constant dense<0> : tensor<i32>
      %16 = stablehlo.dynamic_slice %12, %c_12, %15, %c_12, sizes = [1, 6, 2] : (tensor<1x8x2xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x6x2xf32>
      %17 = stablehlo.convolution(%16, %arg1) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {pad = [[0, 0]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x6x2xf32>, tensor<3x2x2xf32>) -> tensor<1x4x2xf32>
      %c_13 = stablehlo.constant dense<0> : tensor<i32>
      %18 = stablehlo.dynamic_update_slice %iterArg_3, %17, %c_13, %3, %c_13 : (tensor<1x12x2xf32>, tensor<1x4x2xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x12x2xf32>
      %c_14 = stablehlo.constant dense<1> : tensor<i32>
      %19 = stablehlo.add %iterArg, %c_14 : tensor<i32>
      stablehlo.return %19, %18 : tensor<i32>, tensor<1x12x2xf32>
    }
    return %2#1 : tensor<1x12x2xf32>
  }
}
