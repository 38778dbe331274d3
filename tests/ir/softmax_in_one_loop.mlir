// split dot_general along 1 by 4 from 100 streaming
// Along the keys: the sum and the result follow the maximum so far, the result is divided once; scores are computed once.
func.func public @main(%q: tensor<6x4xf32>, %k: tensor<8x4xf32>, %v: tensor<8x4xf32>) -> tensor<6x4xf32> {
  %zero = stablehlo.constant dense<0.000000e+00> : tensor<f32>
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %s = stablehlo.dot_general %q, %k, contracting_dims = [1] x [1] : (tensor<6x4xf32>, tensor<8x4xf32>) -> tensor<6x8xf32>
  %m = stablehlo.reduce(%s init: %low) applies stablehlo.maximum across dimensions = [1] : (tensor<6x8xf32>, tensor<f32>) -> tensor<6xf32>
  %mb = stablehlo.broadcast_in_dim %m, dims = [0] : (tensor<6xf32>) -> tensor<6x8xf32>
  %c = stablehlo.subtract %s, %mb : tensor<6x8xf32>
  %e = stablehlo.exponential %c : tensor<6x8xf32>
  %t = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<6x8xf32>, tensor<f32>) -> tensor<6xf32>
  %tb = stablehlo.broadcast_in_dim %t, dims = [0] : (tensor<6xf32>) -> tensor<6x8xf32>
  %p = stablehlo.divide %e, %tb : tensor<6x8xf32>
  %y = stablehlo.dot_general %p, %v, contracting_dims = [1] x [0] : (tensor<6x8xf32>, tensor<8x4xf32>) -> tensor<6x4xf32>
  return %y : tensor<6x4xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<6x4xf32>, %arg1: tensor<8x4xf32>, %arg2: tensor<8x4xf32>) -> tensor<6x4xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %cst_0 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<6xf32>
    %1 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<6xf32>
    %cst_1 = stablehlo.constant dense<0.000000e+00> : tensor<6x4xf32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %2:4 = stablehlo.while(%iterArg = %c, %iterArg_6 = %0, %iterArg_7 = %1, %iterArg_8 = %cst_1) : tensor<i32>, tensor<6xf32>, tensor<6xf32>, tensor<6x4xf32>
    cond {
      %c_9 = stablehlo.constant dense<2> : tensor<i32>
      %10 = stablehlo.compare LT, %iterArg, %c_9 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %10 : tensor<i1>
    } do {
      %c_9 = stablehlo.constant dense<4> : tensor<i32>
      %10 = stablehlo.multiply %iterArg, %c_9 : tensor<i32>
      %c_10 = stablehlo.constant dense<0> : tensor<i32>
      %11 = stablehlo.dynamic_slice %arg1, %10, %c_10, sizes = [4, 4] : (tensor<8x4xf32>, tensor<i32>, tensor<i32>) -> tensor<4x4xf32>
      %12 = stablehlo.dot_general %arg0, %11, contracting_dims = [1] x [1] : (tensor<6x4xf32>, tensor<4x4xf32>) -> tensor<6x4xf32>
      %13 = stablehlo.reduce(%12 init: %cst_0) applies stablehlo.maximum across dimensions = [1] : (tensor<6x4xf32>, tensor<f32>) -> tensor<6xf32>
      %14 = stablehlo.maximum %iterArg_6, %13 : tensor<6xf32>
      %cst_11 = stablehlo.constant dense<0xFF800000> : tensor<6xf32>
      %15 = stablehlo.compare EQ, %iterArg_6, %cst_11 : (tensor<6xf32>, tensor<6xf32>) -> tensor<6xi1>
      %cst_12 = stablehlo.constant dense<0.000000e+00> : tensor<6xf32>
      %16 = stablehlo.select %15, %cst_12, %iterArg_6 : tensor<6xi1>, tensor<6xf32>
      %cst_13 = stablehlo.constant dense<0xFF800000> : tensor<6xf32>
      %17 = stablehlo.compare EQ, %14, %cst_13 : (tensor<6xf32>, tensor<6xf32>) -> tensor<6xi1>
      %cst_14 = stablehlo.constant dense<0.000000e+00> : tensor<6xf32>
      %18 = stablehlo.select %17, %cst_14, %14 : tensor<6xi1>, tensor<6xf32>
      %19 = stablehlo.broadcast_in_dim %18, dims = [0] : (tensor<6xf32>) -> tensor<6x4xf32>
      %20 = stablehlo.subtract %12, %19 : tensor<6x4xf32>
      %21 = stablehlo.exponential %20 : tensor<6x4xf32>
      %cst_15 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
      %22 = stablehlo.reduce(%21 init: %cst_15) applies stablehlo.add across dimensions = [1] : (tensor<6x4xf32>, tensor<f32>) -> tensor<6xf32>
      %c_16 = stablehlo.constant dense<0> : tensor<i32>
      %23 = stablehlo.dynamic_slice %arg2, %10, %c_16, sizes = [4, 4] : (tensor<8x4xf32>, tensor<i32>, tensor<i32>) -> tensor<4x4xf32>
      %24 = stablehlo.dot_general %21, %23, contracting_dims = [1] x [0] : (tensor<6x4xf32>, tensor<4x4xf32>) -> tensor<6x4xf32>
      %25 = stablehlo.subtract %16, %18 : tensor<6xf32>
      %cst_17 = stablehlo.constant dense<0.000000e+00> : tensor<6xf32>
      %26 = stablehlo.minimum %25, %cst_17 : tensor<6xf32>
      %27 = stablehlo.exponential %26 : tensor<6xf32>
      %28 = stablehlo.multiply %iterArg_7, %27 : tensor<6xf32>
      %29 = stablehlo.add %28, %22 : tensor<6xf32>
      %30 = stablehlo.broadcast_in_dim %27, dims = [0] : (tensor<6xf32>) -> tensor<6x4xf32>
      %31 = stablehlo.multiply %iterArg_8, %30 : tensor<6x4xf32>
      %32 = stablehlo.add %31, %24 : tensor<6x4xf32>
      %c_18 = stablehlo.constant dense<1> : tensor<i32>
      %33 = stablehlo.add %iterArg, %c_18 : tensor<i32>
      stablehlo.return %33, %14, %29, %32 : tensor<i32>, tensor<6xf32>, tensor<6xf32>, tensor<6x4xf32>
    }
    %cst_2 = stablehlo.constant dense<0xFF800000> : tensor<6xf32>
    %3 = stablehlo.compare EQ, %2#1, %cst_2 : (tensor<6xf32>, tensor<6xf32>) -> tensor<6xi1>
    %cst_3 = stablehlo.constant dense<0x7FC00000> : tensor<6xf32>
    %4 = stablehlo.select %3, %cst_3, %2#2 : tensor<6xi1>, tensor<6xf32>
    %cst_4 = stablehlo.constant dense<0xFF800000> : tensor<6xf32>
    %5 = stablehlo.compare EQ, %2#1, %cst_4 : (tensor<6xf32>, tensor<6xf32>) -> tensor<6xi1>
    %6 = stablehlo.broadcast_in_dim %5, dims = [0] : (tensor<6xi1>) -> tensor<6x4xi1>
    %cst_5 = stablehlo.constant dense<0x7FC00000> : tensor<6x4xf32>
    %7 = stablehlo.select %6, %cst_5, %2#3 : tensor<6x4xi1>, tensor<6x4xf32>
    %8 = stablehlo.broadcast_in_dim %4, dims = [0] : (tensor<6xf32>) -> tensor<6x4xf32>
    %9 = stablehlo.divide %7, %8 : tensor<6x4xf32>
    return %9 : tensor<6x4xf32>
  }
}
