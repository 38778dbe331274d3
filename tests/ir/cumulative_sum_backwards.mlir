// split exponential along 0 by 3
func.func public @main(%x: tensor<8x3xf32>) -> tensor<8xf32> {
  %v = stablehlo.constant dense<0.000000e+00> : tensor<f32>
  %e = stablehlo.exponential %x : tensor<8x3xf32>
  %d = "stablehlo.reduce_window"(%e, %v) <{padding = dense<[[0, 7], [0, 0]]> : tensor<2x2xi64>, window_dimensions = array<i64: 8, 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %1 = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %1 : tensor<f32>
  }) : (tensor<8x3xf32>, tensor<f32>) -> tensor<8x3xf32>
  %y = stablehlo.reduce(%d init: %v) applies stablehlo.add across dimensions = [1] : (tensor<8x3xf32>, tensor<f32>) -> tensor<8xf32>
  return %y : tensor<8xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<8x3xf32>) -> tensor<8xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<8xf32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<1x3xf32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %1:3 = stablehlo.while(%iterArg = %c, %iterArg_1 = %cst_0, %iterArg_2 = %0) : tensor<i32>, tensor<8xf32>, tensor<1x3xf32>
    cond {
      %c_3 = stablehlo.constant dense<3> : tensor<i32>
      %2 = stablehlo.compare LT, %iterArg, %c_3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %2 : tensor<i1>
    } do {
      %c_3 = stablehlo.constant dense<2> : tensor<i32>
      %2 = stablehlo.subtract %c_3, %iterArg : tensor<i32>
      %c_4 = stablehlo.constant dense<3> : tensor<i32>
      %3 = stablehlo.multiply %2, %c_4 : tensor<i32>
      %c_5 = stablehlo.constant dense<5> : tensor<i32>
      %4 = stablehlo.minimum %3, %c_5 : tensor<i32>
      %5 = stablehlo.subtract %3, %4 : tensor<i32>
      %c_6 = stablehlo.constant dense<0> : tensor<i32>
      %6 = stablehlo.dynamic_slice %arg0, %4, %c_6, sizes = [3, 3] : (tensor<8x3xf32>, tensor<i32>, tensor<i32>) -> tensor<3x3xf32>
      %7 = stablehlo.exponential %6 : tensor<3x3xf32>
      %cst_7 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
      %8 = "stablehlo.reduce_window"(%7, %cst_7) <{padding = dense<[[0, 2], [0, 0]]> : tensor<2x2xi64>, window_dimensions = array<i64: 3, 1>}> ({
      ^bb0(%arg1: tensor<f32>, %arg2: tensor<f32>):
        %15 = stablehlo.add %arg1, %arg2 : tensor<f32>
        stablehlo.return %15 : tensor<f32>
      }) : (tensor<3x3xf32>, tensor<f32>) -> tensor<3x3xf32>
      %9 = stablehlo.broadcast_in_dim %iterArg_2, dims = [0, 1] : (tensor<1x3xf32>) -> tensor<3x3xf32>
      %10 = stablehlo.add %8, %9 : tensor<3x3xf32>
      %11 = stablehlo.reduce(%10 init: %cst) applies stablehlo.add across dimensions = [1] : (tensor<3x3xf32>, tensor<f32>) -> tensor<3xf32>
      %c_8 = stablehlo.constant dense<0> : tensor<i32>
      %12 = stablehlo.dynamic_update_slice %iterArg_1, %11, %4 : (tensor<8xf32>, tensor<3xf32>, tensor<i32>) -> tensor<8xf32>
      %c_9 = stablehlo.constant dense<0> : tensor<i32>
      %13 = stablehlo.dynamic_slice %10, %5, %c_9, sizes = [1, 3] : (tensor<3x3xf32>, tensor<i32>, tensor<i32>) -> tensor<1x3xf32>
      %c_10 = stablehlo.constant dense<1> : tensor<i32>
      %14 = stablehlo.add %iterArg, %c_10 : tensor<i32>
      stablehlo.return %14, %12, %13 : tensor<i32>, tensor<8xf32>, tensor<1x3xf32>
    }
    return %1#1 : tensor<8xf32>
  }
}
