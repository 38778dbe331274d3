// split sine along 1 by 4
func.func public @main(%x: tensor<1x12x2xf32>, %k: tensor<3x2x5xf32>) -> tensor<1x12x5xf32> {
  %s = stablehlo.sine %x : tensor<1x12x2xf32>
  %y = stablehlo.convolution(%s, %k) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {pad = [[1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x12x2xf32>, tensor<3x2x5xf32>) -> tensor<1x12x5xf32>
  return %y : tensor<1x12x5xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<1x12x2xf32>, %arg1: tensor<3x2x5xf32>) -> tensor<1x12x5xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<1x12x5xf32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0:2 = stablehlo.while(%iterArg = %c, %iterArg_0 = %cst) : tensor<i32>, tensor<1x12x5xf32>
    cond {
      %c_1 = stablehlo.constant dense<3> : tensor<i32>
      %1 = stablehlo.compare LT, %iterArg, %c_1 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %1 : tensor<i1>
    } do {
      %c_1 = stablehlo.constant dense<4> : tensor<i32>
      %1 = stablehlo.multiply %iterArg, %c_1 : tensor<i32>
      %c_2 = stablehlo.constant dense<1> : tensor<i32>
      %2 = stablehlo.subtract %1, %c_2 : tensor<i32>
      %c_3 = stablehlo.constant dense<6> : tensor<i32>
      %3 = stablehlo.minimum %2, %c_3 : tensor<i32>
      %c_4 = stablehlo.constant dense<0> : tensor<i32>
      %4 = stablehlo.maximum %3, %c_4 : tensor<i32>
      %c_5 = stablehlo.constant dense<0> : tensor<i32>
      %5 = stablehlo.dynamic_slice %arg0, %c_5, %4, %c_5, sizes = [1, 6, 2] : (tensor<1x12x2xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x6x2xf32>
      %6 = stablehlo.sine %5 : tensor<1x6x2xf32>
      %cst_6 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
      %7 = stablehlo.pad %6, %cst_6, low = [0, 1, 0], high = [0, 1, 0], interior = [0, 0, 0] : (tensor<1x6x2xf32>, tensor<f32>) -> tensor<1x8x2xf32>
      %c_7 = stablehlo.constant dense<1> : tensor<i32>
      %8 = stablehlo.subtract %1, %c_7 : tensor<i32>
      %9 = stablehlo.subtract %8, %4 : tensor<i32>
      %c_8 = stablehlo.constant dense<1> : tensor<i32>
      %10 = stablehlo.add %9, %c_8 : tensor<i32>
      %c_9 = stablehlo.constant dense<0> : tensor<i32>
      %11 = stablehlo.dynamic_slice %7, %c_9, %10, %c_9, sizes = [1, 6, 2] : (tensor<1x8x2xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x6x2xf32>
      %12 = stablehlo.convolution(%11, %arg1) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {pad = [[0, 0]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x6x2xf32>, tensor<3x2x5xf32>) -> tensor<1x4x5xf32>
      %c_10 = stablehlo.constant dense<0> : tensor<i32>
      %13 = stablehlo.dynamic_update_slice %iterArg_0, %12, %c_10, %1, %c_10 : (tensor<1x12x5xf32>, tensor<1x4x5xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x12x5xf32>
      %c_11 = stablehlo.constant dense<1> : tensor<i32>
      %14 = stablehlo.add %iterArg, %c_11 : tensor<i32>
      stablehlo.return %14, %13 : tensor<i32>, tensor<1x12x5xf32>
    }
    return %0#1 : tensor<1x12x5xf32>
  }
}
