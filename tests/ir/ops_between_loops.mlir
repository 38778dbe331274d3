// split exponential along 0 by 2 from 64
// The sort of what the first loop leaves runs between the loops; the sine of an argument waits until it is needed.
func.func public @main(%x: tensor<6x4xf32>, %w: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %zero = stablehlo.constant dense<0.000000e+00> : tensor<f32>
  %e = stablehlo.exponential %x : tensor<6x4xf32>
  %s = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<6x4xf32>, tensor<f32>) -> tensor<4xf32>
  %o = "stablehlo.sort"(%s) <{dimension = 0 : i64}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %lt = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %lt : tensor<i1>
  }) : (tensor<4xf32>) -> tensor<4xf32>
  %late = stablehlo.sine %w : tensor<4xf32>
  %p = stablehlo.multiply %o, %late : tensor<4xf32>
  %b = stablehlo.broadcast_in_dim %p, dims = [1] : (tensor<4xf32>) -> tensor<6x4xf32>
  %f = stablehlo.multiply %e, %b : tensor<6x4xf32>
  %y = stablehlo.reduce(%f init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<6x4xf32>, tensor<f32>) -> tensor<4xf32>
  %last = stablehlo.sine %y : tensor<4xf32>
  return %last, %s : tensor<4xf32>, tensor<4xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<6x4xf32>, %arg1: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<4xf32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %1:2 = stablehlo.while(%iterArg = %c, %iterArg_1 = %0) : tensor<i32>, tensor<4xf32>
    cond {
      %c_2 = stablehlo.constant dense<3> : tensor<i32>
      %8 = stablehlo.compare LT, %iterArg, %c_2 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %8 : tensor<i1>
    } do {
      %c_2 = stablehlo.constant dense<2> : tensor<i32>
      %8 = stablehlo.multiply %iterArg, %c_2 : tensor<i32>
      %c_3 = stablehlo.constant dense<0> : tensor<i32>
      %9 = stablehlo.dynamic_slice %arg0, %8, %c_3, sizes = [2, 4] : (tensor<6x4xf32>, tensor<i32>, tensor<i32>) -> tensor<2x4xf32>
      %10 = stablehlo.exponential %9 : tensor<2x4xf32>
      %cst_4 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
      %11 = stablehlo.reduce(%10 init: %cst_4) applies stablehlo.add across dimensions = [0] : (tensor<2x4xf32>, tensor<f32>) -> tensor<4xf32>
      %12 = stablehlo.add %iterArg_1, %11 : tensor<4xf32>
      %c_5 = stablehlo.constant dense<1> : tensor<i32>
      %13 = stablehlo.add %iterArg, %c_5 : tensor<i32>
      stablehlo.return %13, %12 : tensor<i32>, tensor<4xf32>
    }
    %2 = "stablehlo.sort"(%1#1) <{dimension = 0 : i64}> ({
    ^bb0(%arg2: tensor<f32>, %arg3: tensor<f32>):
      %8 = stablehlo.compare LT, %arg2, %arg3 : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %8 : tensor<i1>
    }) : (tensor<4xf32>) -> tensor<4xf32>
    %3 = stablehlo.sine %arg1 : tensor<4xf32>
    %4 = stablehlo.multiply %2, %3 : tensor<4xf32>
    %5 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<4xf32>
    %c_0 = stablehlo.constant dense<0> : tensor<i32>
    %6:2 = stablehlo.while(%iterArg = %c_0, %iterArg_1 = %5) : tensor<i32>, tensor<4xf32>
    cond {
      %c_2 = stablehlo.constant dense<3> : tensor<i32>
      %8 = stablehlo.compare LT, %iterArg, %c_2 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %8 : tensor<i1>
    } do {
      %c_2 = stablehlo.constant dense<2> : tensor<i32>
      %8 = stablehlo.multiply %iterArg, %c_2 : tensor<i32>
      %c_3 = stablehlo.constant dense<0> : tensor<i32>
      %9 = stablehlo.dynamic_slice %arg0, %8, %c_3, sizes = [2, 4] : (tensor<6x4xf32>, tensor<i32>, tensor<i32>) -> tensor<2x4xf32>
      %10 = stablehlo.exponential %9 : tensor<2x4xf32>
      %11 = stablehlo.broadcast_in_dim %4, dims = [1] : (tensor<4xf32>) -> tensor<2x4xf32>
      %12 = stablehlo.multiply %10, %11 : tensor<2x4xf32>
      %cst_4 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
      %13 = stablehlo.reduce(%12 init: %cst_4) applies stablehlo.add across dimensions = [0] : (tensor<2x4xf32>, tensor<f32>) -> tensor<4xf32>
      %14 = stablehlo.add %iterArg_1, %13 : tensor<4xf32>
      %c_5 = stablehlo.constant dense<1> : tensor<i32>
      %15 = stablehlo.add %iterArg, %c_5 : tensor<i32>
      stablehlo.return %15, %14 : tensor<i32>, tensor<4xf32>
    }
    %7 = stablehlo.sine %6#1 : tensor<4xf32>
    return %7, %1#1 : tensor<4xf32>, tensor<4xf32>
  }
}
