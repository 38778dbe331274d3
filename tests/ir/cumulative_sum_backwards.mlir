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
      %6 = stablehlo.compare GT, %3, %c_5 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      %7 = stablehlo.subtract %c_5, %4 : tensor<i32>
      %c_6 = stablehlo.constant dense<3> : tensor<i32>
      %8 = stablehlo.minimum %7, %c_6 : tensor<i32>
      %c_7 = stablehlo.constant dense<3> : tensor<i32>
      %9 = stablehlo.select %6, %c_7, %8 : tensor<i1>, tensor<i32>
      %c_8 = stablehlo.constant dense<0> : tensor<i32>
      %10 = stablehlo.dynamic_slice %arg0, %4, %c_8, sizes = [3, 3] : (tensor<8x3xf32>, tensor<i32>, tensor<i32>) -> tensor<3x3xf32>
      %11 = stablehlo.exponential %10 : tensor<3x3xf32>
      %cst_9 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
      %12 = "stablehlo.reduce_window"(%11, %cst_9) <{padding = dense<[[0, 2], [0, 0]]> : tensor<2x2xi64>, window_dimensions = array<i64: 3, 1>}> ({
      ^bb0(%arg1: tensor<f32>, %arg2: tensor<f32>):
        %25 = stablehlo.add %arg1, %arg2 : tensor<f32>
        stablehlo.return %25 : tensor<f32>
      }) : (tensor<3x3xf32>, tensor<f32>) -> tensor<3x3xf32>
      %13 = stablehlo.broadcast_in_dim %iterArg_2, dims = [0, 1] : (tensor<1x3xf32>) -> tensor<3x3xf32>
      %14 = stablehlo.add %12, %13 : tensor<3x3xf32>
      %15 = stablehlo.reduce(%14 init: %cst) applies stablehlo.add across dimensions = [1] : (tensor<3x3xf32>, tensor<f32>) -> tensor<3xf32>
      %c_10 = stablehlo.constant dense<0> : tensor<i32>
      %16 = stablehlo.dynamic_slice %iterArg_1, %4, sizes = [3] : (tensor<8xf32>, tensor<i32>) -> tensor<3xf32>
      %17 = stablehlo.iota dim = 0 : tensor<3xi32>
      %18 = stablehlo.broadcast_in_dim %9, dims = [] : (tensor<i32>) -> tensor<3xi32>
      %19 = stablehlo.compare LT, %17, %18 : (tensor<3xi32>, tensor<3xi32>) -> tensor<3xi1>
      %20 = stablehlo.broadcast_in_dim %19, dims = [0] : (tensor<3xi1>) -> tensor<3xi1>
      %21 = stablehlo.select %20, %15, %16 : tensor<3xi1>, tensor<3xf32>
      %c_11 = stablehlo.constant dense<0> : tensor<i32>
      %22 = stablehlo.dynamic_update_slice %iterArg_1, %21, %4 : (tensor<8xf32>, tensor<3xf32>, tensor<i32>) -> tensor<8xf32>
      %c_12 = stablehlo.constant dense<0> : tensor<i32>
      %23 = stablehlo.dynamic_slice %14, %5, %c_12, sizes = [1, 3] : (tensor<3x3xf32>, tensor<i32>, tensor<i32>) -> tensor<1x3xf32>
      %c_13 = stablehlo.constant dense<1> : tensor<i32>
      %24 = stablehlo.add %iterArg, %c_13 : tensor<i32>
      stablehlo.return %24, %22, %23 : tensor<i32>, tensor<8xf32>, tensor<1x3xf32>
    }
    return %1#1 : tensor<8xf32>
  }
}
