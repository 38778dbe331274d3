// fuse-into-scan
func.func public @main(%x: tensor<3x8x4xf32>, %t: tensor<3x8x4xf32>) -> (tensor<f32>, tensor<3x8x4xf32>, tensor<8x4xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %start = stablehlo.constant dense<0.0> : tensor<8x4xf32>
  %none = stablehlo.constant dense<0.0> : tensor<f32>
  %init = stablehlo.constant dense<0.0> : tensor<3x8x4xf32>
  %0:3 = stablehlo.while(%i = %zero, %h = %start, %s = %init) : tensor<i32>, tensor<8x4xf32>, tensor<3x8x4xf32>
  cond {
    %c = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %1 = stablehlo.dynamic_slice %x, %i, %zero, %zero, sizes = [1, 8, 4] : (tensor<3x8x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x8x4xf32>
    %2 = stablehlo.reshape %1 : (tensor<1x8x4xf32>) -> tensor<8x4xf32>
    %3 = stablehlo.add %h, %2 : tensor<8x4xf32>
    %4 = stablehlo.tanh %3 : tensor<8x4xf32>
    %5 = stablehlo.reshape %4 : (tensor<8x4xf32>) -> tensor<1x8x4xf32>
    %6 = stablehlo.dynamic_update_slice %s, %5, %i, %zero, %zero : (tensor<3x8x4xf32>, tensor<1x8x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<3x8x4xf32>
    %7 = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %7, %4, %6 : tensor<i32>, tensor<8x4xf32>, tensor<3x8x4xf32>
  }
  %8 = stablehlo.subtract %0#2, %t : tensor<3x8x4xf32>
  %9 = stablehlo.multiply %8, %8 : tensor<3x8x4xf32>
  %10 = stablehlo.reduce(%9 init: %none) applies stablehlo.add across dimensions = [0, 1, 2] : (tensor<3x8x4xf32>, tensor<f32>) -> tensor<f32>
  %11 = stablehlo.add %8, %8 : tensor<3x8x4xf32>
  return %10, %11, %0#1 : tensor<f32>, tensor<3x8x4xf32>, tensor<8x4xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<3x8x4xf32>, %arg1: tensor<3x8x4xf32>) -> (tensor<f32>, tensor<3x8x4xf32>, tensor<8x4xf32>) {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %c_0 = stablehlo.constant dense<1> : tensor<i32>
    %c_1 = stablehlo.constant dense<3> : tensor<i32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<8x4xf32>
    %cst_2 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %cst_3 = stablehlo.constant dense<0.000000e+00> : tensor<3x8x4xf32>
    %0 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<f32>) -> tensor<f32>
    %1:4 = stablehlo.while(%iterArg = %c, %iterArg_4 = %cst, %iterArg_5 = %0, %iterArg_6 = %cst_3) : tensor<i32>, tensor<8x4xf32>, tensor<f32>, tensor<3x8x4xf32>
    cond {
      %2 = stablehlo.compare LT, %iterArg, %c_1 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %2 : tensor<i1>
    } do {
      %2 = stablehlo.dynamic_slice %arg0, %iterArg, %c, %c, sizes = [1, 8, 4] : (tensor<3x8x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x8x4xf32>
      %3 = stablehlo.reshape %2 : (tensor<1x8x4xf32>) -> tensor<8x4xf32>
      %4 = stablehlo.add %iterArg_4, %3 : tensor<8x4xf32>
      %5 = stablehlo.tanh %4 : tensor<8x4xf32>
      %6 = stablehlo.reshape %5 : (tensor<8x4xf32>) -> tensor<1x8x4xf32>
      %7 = stablehlo.add %iterArg, %c_0 : tensor<i32>
      %8 = stablehlo.dynamic_slice %arg1, %iterArg, %c, %c, sizes = [1, 8, 4] : (tensor<3x8x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x8x4xf32>
      %9 = stablehlo.subtract %6, %8 : tensor<1x8x4xf32>
      %10 = stablehlo.multiply %9, %9 : tensor<1x8x4xf32>
      %11 = stablehlo.reduce(%10 init: %cst_2) applies stablehlo.add across dimensions = [0, 1, 2] : (tensor<1x8x4xf32>, tensor<f32>) -> tensor<f32>
      %12 = stablehlo.add %iterArg_5, %11 : tensor<f32>
      %13 = stablehlo.add %9, %9 : tensor<1x8x4xf32>
      %14 = stablehlo.dynamic_update_slice %iterArg_6, %13, %iterArg, %c, %c : (tensor<3x8x4xf32>, tensor<1x8x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<3x8x4xf32>
      stablehlo.return %7, %5, %12, %14 : tensor<i32>, tensor<8x4xf32>, tensor<f32>, tensor<3x8x4xf32>
    }
    return %1#2, %1#3, %1#1 : tensor<f32>, tensor<3x8x4xf32>, tensor<8x4xf32>
  }
}
