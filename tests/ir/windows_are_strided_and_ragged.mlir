// split exponential along 1 by 2
func.func public @main(%x: tensor<3x10xf32>) -> tensor<3x5xf32> {
  %v = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %e = stablehlo.exponential %x : tensor<3x10xf32>
  %y = "stablehlo.reduce_window"(%e, %v) <{padding = dense<[[0, 0], [0, 1]]> : tensor<2x2xi64>, window_dimensions = array<i64: 1, 3>, window_strides = array<i64: 1, 2>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %1 = stablehlo.maximum %a, %b : tensor<f32>
    stablehlo.return %1 : tensor<f32>
  }) : (tensor<3x10xf32>, tensor<f32>) -> tensor<3x5xf32>
  return %y : tensor<3x5xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<3x10xf32>) -> tensor<3x5xf32> {
    %cst = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<3x5xf32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0:2 = stablehlo.while(%iterArg = %c, %iterArg_1 = %cst_0) : tensor<i32>, tensor<3x5xf32>
    cond {
      %c_2 = stablehlo.constant dense<3> : tensor<i32>
      %1 = stablehlo.compare LT, %iterArg, %c_2 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %1 : tensor<i1>
    } do {
      %c_2 = stablehlo.constant dense<2> : tensor<i32>
      %1 = stablehlo.multiply %iterArg, %c_2 : tensor<i32>
      %c_3 = stablehlo.constant dense<3> : tensor<i32>
      %2 = stablehlo.minimum %1, %c_3 : tensor<i32>
      %3 = stablehlo.subtract %1, %2 : tensor<i32>
      %c_4 = stablehlo.constant dense<2> : tensor<i32>
      %4 = stablehlo.multiply %2, %c_4 : tensor<i32>
      %c_5 = stablehlo.constant dense<5> : tensor<i32>
      %5 = stablehlo.minimum %4, %c_5 : tensor<i32>
      %c_6 = stablehlo.constant dense<0> : tensor<i32>
      %6 = stablehlo.maximum %5, %c_6 : tensor<i32>
      %c_7 = stablehlo.constant dense<0> : tensor<i32>
      %7 = stablehlo.dynamic_slice %arg0, %c_7, %6, sizes = [3, 5] : (tensor<3x10xf32>, tensor<i32>, tensor<i32>) -> tensor<3x5xf32>
      %8 = stablehlo.exponential %7 : tensor<3x5xf32>
      %9 = stablehlo.pad %8, %cst, low = [0, 0], high = [0, 1], interior = [0, 0] : (tensor<3x5xf32>, tensor<f32>) -> tensor<3x6xf32>
      %c_8 = stablehlo.constant dense<2> : tensor<i32>
      %10 = stablehlo.multiply %2, %c_8 : tensor<i32>
      %11 = stablehlo.subtract %10, %6 : tensor<i32>
      %c_9 = stablehlo.constant dense<0> : tensor<i32>
      %12 = stablehlo.add %11, %c_9 : tensor<i32>
      %c_10 = stablehlo.constant dense<0> : tensor<i32>
      %13 = stablehlo.dynamic_slice %9, %c_10, %12, sizes = [3, 5] : (tensor<3x6xf32>, tensor<i32>, tensor<i32>) -> tensor<3x5xf32>
      %14 = "stablehlo.reduce_window"(%13, %cst) <{padding = dense<0> : tensor<2x2xi64>, window_dimensions = array<i64: 1, 3>, window_strides = array<i64: 1, 2>}> ({
      ^bb0(%arg1: tensor<f32>, %arg2: tensor<f32>):
        %17 = stablehlo.maximum %arg1, %arg2 : tensor<f32>
        stablehlo.return %17 : tensor<f32>
      }) : (tensor<3x5xf32>, tensor<f32>) -> tensor<3x2xf32>
      %c_11 = stablehlo.constant dense<0> : tensor<i32>
      %15 = stablehlo.dynamic_update_slice %iterArg_1, %14, %c_11, %2 : (tensor<3x5xf32>, tensor<3x2xf32>, tensor<i32>, tensor<i32>) -> tensor<3x5xf32>
      %c_12 = stablehlo.constant dense<1> : tensor<i32>
      %16 = stablehlo.add %iterArg, %c_12 : tensor<i32>
      stablehlo.return %16, %15 : tensor<i32>, tensor<3x5xf32>
    }
    return %0#1 : tensor<3x5xf32>
  }
}
