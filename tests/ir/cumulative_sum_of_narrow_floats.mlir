// split exponential along 0 by 3
func.func public @main(%x: tensor<8x3xbf16>) -> tensor<8x3xbf16> {
  %v = stablehlo.constant dense<0.0> : tensor<bf16>
  %e = stablehlo.exponential %x : tensor<8x3xbf16>
  %c = "stablehlo.reduce_window"(%e, %v) <{padding = dense<[[7, 0], [0, 0]]> : tensor<2x2xi64>, window_dimensions = array<i64: 8, 1>}> ({
  ^bb0(%a: tensor<bf16>, %b: tensor<bf16>):
    %1 = stablehlo.add %a, %b : tensor<bf16>
    stablehlo.return %1 : tensor<bf16>
  }) : (tensor<8x3xbf16>, tensor<bf16>) -> tensor<8x3xbf16>
  return %c : tensor<8x3xbf16>
}

// -----
module {
  func.func public @main(%arg0: tensor<8x3xbf16>) -> tensor<8x3xbf16> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<bf16>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<8x3xbf16>
    %0 = stablehlo.convert %cst : (tensor<bf16>) -> tensor<f32>
    %1 = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<f32>) -> tensor<3x3xf32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %2:3 = stablehlo.while(%iterArg = %c, %iterArg_1 = %cst_0, %iterArg_2 = %1) : tensor<i32>, tensor<8x3xbf16>, tensor<3x3xf32>
    cond {
      %c_3 = stablehlo.constant dense<3> : tensor<i32>
      %3 = stablehlo.compare LT, %iterArg, %c_3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %3 : tensor<i1>
    } do {
      %c_3 = stablehlo.constant dense<3> : tensor<i32>
      %3 = stablehlo.multiply %iterArg, %c_3 : tensor<i32>
      %c_4 = stablehlo.constant dense<5> : tensor<i32>
      %4 = stablehlo.minimum %3, %c_4 : tensor<i32>
      %5 = stablehlo.subtract %3, %4 : tensor<i32>
      %c_5 = stablehlo.constant dense<0> : tensor<i32>
      %6 = stablehlo.dynamic_slice %arg0, %4, %c_5, sizes = [3, 3] : (tensor<8x3xbf16>, tensor<i32>, tensor<i32>) -> tensor<3x3xbf16>
      %7 = stablehlo.exponential %6 : tensor<3x3xbf16>
      %c_6 = stablehlo.constant dense<2> : tensor<i32>
      %8 = stablehlo.subtract %c_6, %5 : tensor<i32>
      %c_7 = stablehlo.constant dense<0> : tensor<i32>
      %9 = stablehlo.dynamic_slice %iterArg_2, %8, %c_7, sizes = [1, 3] : (tensor<3x3xf32>, tensor<i32>, tensor<i32>) -> tensor<1x3xf32>
      %cst_8 = stablehlo.constant dense<0.000000e+00> : tensor<bf16>
      %10 = "stablehlo.reduce_window"(%7, %cst_8) <{padding = dense<[[2, 0], [0, 0]]> : tensor<2x2xi64>, window_dimensions = array<i64: 3, 1>}> ({
      ^bb0(%arg1: tensor<bf16>, %arg2: tensor<bf16>):
        %17 = stablehlo.add %arg1, %arg2 : tensor<bf16>
        stablehlo.return %17 : tensor<bf16>
      }) : (tensor<3x3xbf16>, tensor<bf16>) -> tensor<3x3xbf16>
      %11 = stablehlo.convert %10 : (tensor<3x3xbf16>) -> tensor<3x3xf32>
      %12 = stablehlo.broadcast_in_dim %9, dims = [0, 1] : (tensor<1x3xf32>) -> tensor<3x3xf32>
      %13 = stablehlo.add %12, %11 : tensor<3x3xf32>
      %14 = stablehlo.convert %13 : (tensor<3x3xf32>) -> tensor<3x3xbf16>
      %c_9 = stablehlo.constant dense<0> : tensor<i32>
      %15 = stablehlo.dynamic_update_slice %iterArg_1, %14, %4, %c_9 : (tensor<8x3xbf16>, tensor<3x3xbf16>, tensor<i32>, tensor<i32>) -> tensor<8x3xbf16>
      %c_10 = stablehlo.constant dense<1> : tensor<i32>
      %16 = stablehlo.add %iterArg, %c_10 : tensor<i32>
      stablehlo.return %16, %15, %13 : tensor<i32>, tensor<8x3xbf16>, tensor<3x3xf32>
    }
    return %2#1 : tensor<8x3xbf16>
  }
}
