// split exponential along 0 by 4
func.func public @main(%x: tensor<8x3xf32>, %v: tensor<f32>) -> tensor<8xf32> {
  %e = stablehlo.exponential %x : tensor<8x3xf32>
  %c = "stablehlo.reduce_window"(%e, %v) <{padding = dense<[[7, 0], [0, 0]]> : tensor<2x2xi64>, window_dimensions = array<i64: 8, 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %1 = stablehlo.maximum %a, %b : tensor<f32>
    stablehlo.return %1 : tensor<f32>
  }) : (tensor<8x3xf32>, tensor<f32>) -> tensor<8x3xf32>
  %y = stablehlo.reduce(%c init: %v) applies stablehlo.minimum across dimensions = [1] : (tensor<8x3xf32>, tensor<f32>) -> tensor<8xf32>
  return %y : tensor<8xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<8x3xf32>, %arg1: tensor<f32>) -> tensor<8xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<8xf32>
    %0 = stablehlo.broadcast_in_dim %arg1, dims = [] : (tensor<f32>) -> tensor<1x3xf32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %1:3 = stablehlo.while(%iterArg = %c, %iterArg_0 = %cst, %iterArg_1 = %0) : tensor<i32>, tensor<8xf32>, tensor<1x3xf32>
    cond {
      %c_2 = stablehlo.constant dense<2> : tensor<i32>
      %2 = stablehlo.compare LT, %iterArg, %c_2 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %2 : tensor<i1>
    } do {
      %c_2 = stablehlo.constant dense<4> : tensor<i32>
      %2 = stablehlo.multiply %iterArg, %c_2 : tensor<i32>
      %c_3 = stablehlo.constant dense<0> : tensor<i32>
      %3 = stablehlo.dynamic_slice %arg0, %2, %c_3, sizes = [4, 3] : (tensor<8x3xf32>, tensor<i32>, tensor<i32>) -> tensor<4x3xf32>
      %4 = stablehlo.exponential %3 : tensor<4x3xf32>
      %5 = "stablehlo.reduce_window"(%4, %arg1) <{padding = dense<[[3, 0], [0, 0]]> : tensor<2x2xi64>, window_dimensions = array<i64: 4, 1>}> ({
      ^bb0(%arg2: tensor<f32>, %arg3: tensor<f32>):
        %12 = stablehlo.maximum %arg2, %arg3 : tensor<f32>
        stablehlo.return %12 : tensor<f32>
      }) : (tensor<4x3xf32>, tensor<f32>) -> tensor<4x3xf32>
      %6 = stablehlo.broadcast_in_dim %iterArg_1, dims = [0, 1] : (tensor<1x3xf32>) -> tensor<4x3xf32>
      %7 = stablehlo.maximum %6, %5 : tensor<4x3xf32>
      %8 = stablehlo.reduce(%7 init: %arg1) applies stablehlo.minimum across dimensions = [1] : (tensor<4x3xf32>, tensor<f32>) -> tensor<4xf32>
      %c_4 = stablehlo.constant dense<0> : tensor<i32>
      %9 = stablehlo.dynamic_update_slice %iterArg_0, %8, %2 : (tensor<8xf32>, tensor<4xf32>, tensor<i32>) -> tensor<8xf32>
      %10 = stablehlo.slice %7 [3:4, 0:3] : (tensor<4x3xf32>) -> tensor<1x3xf32>
      %c_5 = stablehlo.constant dense<1> : tensor<i32>
      %11 = stablehlo.add %iterArg, %c_5 : tensor<i32>
      stablehlo.return %11, %9, %10 : tensor<i32>, tensor<8xf32>, tensor<1x3xf32>
    }
    return %1#1 : tensor<8xf32>
  }
}
