// split exponential along 0 by 4
func.func public @main(%x: tensor<8x3xf32>) -> tensor<8xf32> {
  %v = stablehlo.constant dense<0.000000e+00> : tensor<f32>
  %e = stablehlo.exponential %x : tensor<8x3xf32>
  %c = "stablehlo.reduce_window"(%e, %v) <{padding = dense<[[7, 0], [0, 0]]> : tensor<2x2xi64>, window_dimensions = array<i64: 8, 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %1 = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %1 : tensor<f32>
  }) : (tensor<8x3xf32>, tensor<f32>) -> tensor<8x3xf32>
  %t = stablehlo.tanh %c : tensor<8x3xf32>
  %d = "stablehlo.reduce_window"(%t, %v) <{padding = dense<[[0, 7], [0, 0]]> : tensor<2x2xi64>, window_dimensions = array<i64: 8, 1>}> ({
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
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<1x3xf32>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<2x3xf32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %1:3 = stablehlo.while(%iterArg = %c, %iterArg_3 = %0, %iterArg_4 = %cst_0) : tensor<i32>, tensor<1x3xf32>, tensor<2x3xf32>
    cond {
      %c_5 = stablehlo.constant dense<2> : tensor<i32>
      %4 = stablehlo.compare LT, %iterArg, %c_5 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %4 : tensor<i1>
    } do {
      %c_5 = stablehlo.constant dense<4> : tensor<i32>
      %4 = stablehlo.multiply %iterArg, %c_5 : tensor<i32>
      %c_6 = stablehlo.constant dense<0> : tensor<i32>
      %5 = stablehlo.dynamic_slice %arg0, %4, %c_6, sizes = [4, 3] : (tensor<8x3xf32>, tensor<i32>, tensor<i32>) -> tensor<4x3xf32>
      %6 = stablehlo.exponential %5 : tensor<4x3xf32>
      %cst_7 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
      %7 = "stablehlo.reduce_window"(%6, %cst_7) <{padding = dense<[[3, 0], [0, 0]]> : tensor<2x2xi64>, window_dimensions = array<i64: 4, 1>}> ({
      ^bb0(%arg1: tensor<f32>, %arg2: tensor<f32>):
        %13 = stablehlo.add %arg1, %arg2 : tensor<f32>
        stablehlo.return %13 : tensor<f32>
      }) : (tensor<4x3xf32>, tensor<f32>) -> tensor<4x3xf32>
      %8 = stablehlo.broadcast_in_dim %iterArg_3, dims = [0, 1] : (tensor<1x3xf32>) -> tensor<4x3xf32>
      %9 = stablehlo.add %8, %7 : tensor<4x3xf32>
      %10 = stablehlo.slice %9 [3:4, 0:3] : (tensor<4x3xf32>) -> tensor<1x3xf32>
      %c_8 = stablehlo.constant dense<0> : tensor<i32>
      %11 = stablehlo.dynamic_update_slice %iterArg_4, %iterArg_3, %iterArg, %c_8 : (tensor<2x3xf32>, tensor<1x3xf32>, tensor<i32>, tensor<i32>) -> tensor<2x3xf32>
      %c_9 = stablehlo.constant dense<1> : tensor<i32>
      %12 = stablehlo.add %iterArg, %c_9 : tensor<i32>
      stablehlo.return %12, %10, %11 : tensor<i32>, tensor<1x3xf32>, tensor<2x3xf32>
    }
    %cst_1 = stablehlo.constant dense<0.000000e+00> : tensor<8xf32>
    %2 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<1x3xf32>
    %c_2 = stablehlo.constant dense<0> : tensor<i32>
    %3:3 = stablehlo.while(%iterArg = %c_2, %iterArg_3 = %cst_1, %iterArg_4 = %2) : tensor<i32>, tensor<8xf32>, tensor<1x3xf32>
    cond {
      %c_5 = stablehlo.constant dense<2> : tensor<i32>
      %4 = stablehlo.compare LT, %iterArg, %c_5 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %4 : tensor<i1>
    } do {
      %c_5 = stablehlo.constant dense<1> : tensor<i32>
      %4 = stablehlo.subtract %c_5, %iterArg : tensor<i32>
      %c_6 = stablehlo.constant dense<4> : tensor<i32>
      %5 = stablehlo.multiply %4, %c_6 : tensor<i32>
      %c_7 = stablehlo.constant dense<0> : tensor<i32>
      %6 = stablehlo.dynamic_slice %arg0, %5, %c_7, sizes = [4, 3] : (tensor<8x3xf32>, tensor<i32>, tensor<i32>) -> tensor<4x3xf32>
      %7 = stablehlo.exponential %6 : tensor<4x3xf32>
      %c_8 = stablehlo.constant dense<0> : tensor<i32>
      %8 = stablehlo.dynamic_slice %1#2, %4, %c_8, sizes = [1, 3] : (tensor<2x3xf32>, tensor<i32>, tensor<i32>) -> tensor<1x3xf32>
      %cst_9 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
      %9 = "stablehlo.reduce_window"(%7, %cst_9) <{padding = dense<[[3, 0], [0, 0]]> : tensor<2x2xi64>, window_dimensions = array<i64: 4, 1>}> ({
      ^bb0(%arg1: tensor<f32>, %arg2: tensor<f32>):
        %20 = stablehlo.add %arg1, %arg2 : tensor<f32>
        stablehlo.return %20 : tensor<f32>
      }) : (tensor<4x3xf32>, tensor<f32>) -> tensor<4x3xf32>
      %10 = stablehlo.broadcast_in_dim %8, dims = [0, 1] : (tensor<1x3xf32>) -> tensor<4x3xf32>
      %11 = stablehlo.add %10, %9 : tensor<4x3xf32>
      %12 = stablehlo.tanh %11 : tensor<4x3xf32>
      %cst_10 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
      %13 = "stablehlo.reduce_window"(%12, %cst_10) <{padding = dense<[[0, 3], [0, 0]]> : tensor<2x2xi64>, window_dimensions = array<i64: 4, 1>}> ({
      ^bb0(%arg1: tensor<f32>, %arg2: tensor<f32>):
        %20 = stablehlo.add %arg1, %arg2 : tensor<f32>
        stablehlo.return %20 : tensor<f32>
      }) : (tensor<4x3xf32>, tensor<f32>) -> tensor<4x3xf32>
      %14 = stablehlo.broadcast_in_dim %iterArg_4, dims = [0, 1] : (tensor<1x3xf32>) -> tensor<4x3xf32>
      %15 = stablehlo.add %13, %14 : tensor<4x3xf32>
      %16 = stablehlo.reduce(%15 init: %cst) applies stablehlo.add across dimensions = [1] : (tensor<4x3xf32>, tensor<f32>) -> tensor<4xf32>
      %c_11 = stablehlo.constant dense<0> : tensor<i32>
      %17 = stablehlo.dynamic_update_slice %iterArg_3, %16, %5 : (tensor<8xf32>, tensor<4xf32>, tensor<i32>) -> tensor<8xf32>
      %18 = stablehlo.slice %15 [0:1, 0:3] : (tensor<4x3xf32>) -> tensor<1x3xf32>
      %c_12 = stablehlo.constant dense<1> : tensor<i32>
      %19 = stablehlo.add %iterArg, %c_12 : tensor<i32>
      stablehlo.return %19, %17, %18 : tensor<i32>, tensor<8xf32>, tensor<1x3xf32>
    }
    return %3#1 : tensor<8xf32>
  }
}
