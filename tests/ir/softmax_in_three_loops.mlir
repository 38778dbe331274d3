// split dot_general along 1 by 4 from 100
// Along the keys: the maximum, the sum and the result each need the loop before finished; scores are computed again.
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
    %c = stablehlo.constant dense<0> : tensor<i32>
    %1:2 = stablehlo.while(%iterArg = %c, %iterArg_4 = %0) : tensor<i32>, tensor<6xf32>
    cond {
      %c_5 = stablehlo.constant dense<2> : tensor<i32>
      %5 = stablehlo.compare LT, %iterArg, %c_5 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %5 : tensor<i1>
    } do {
      %c_5 = stablehlo.constant dense<4> : tensor<i32>
      %5 = stablehlo.multiply %iterArg, %c_5 : tensor<i32>
      %c_6 = stablehlo.constant dense<0> : tensor<i32>
      %6 = stablehlo.dynamic_slice %arg1, %5, %c_6, sizes = [4, 4] : (tensor<8x4xf32>, tensor<i32>, tensor<i32>) -> tensor<4x4xf32>
      %7 = stablehlo.dot_general %arg0, %6, contracting_dims = [1] x [1] : (tensor<6x4xf32>, tensor<4x4xf32>) -> tensor<6x4xf32>
      %8 = stablehlo.reduce(%7 init: %cst_0) applies stablehlo.maximum across dimensions = [1] : (tensor<6x4xf32>, tensor<f32>) -> tensor<6xf32>
      %9 = stablehlo.maximum %iterArg_4, %8 : tensor<6xf32>
      %c_7 = stablehlo.constant dense<1> : tensor<i32>
      %10 = stablehlo.add %iterArg, %c_7 : tensor<i32>
      stablehlo.return %10, %9 : tensor<i32>, tensor<6xf32>
    }
    %2 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<6xf32>
    %c_1 = stablehlo.constant dense<0> : tensor<i32>
    %3:2 = stablehlo.while(%iterArg = %c_1, %iterArg_4 = %2) : tensor<i32>, tensor<6xf32>
    cond {
      %c_5 = stablehlo.constant dense<2> : tensor<i32>
      %5 = stablehlo.compare LT, %iterArg, %c_5 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %5 : tensor<i1>
    } do {
      %c_5 = stablehlo.constant dense<4> : tensor<i32>
      %5 = stablehlo.multiply %iterArg, %c_5 : tensor<i32>
      %c_6 = stablehlo.constant dense<0> : tensor<i32>
      %6 = stablehlo.dynamic_slice %arg1, %5, %c_6, sizes = [4, 4] : (tensor<8x4xf32>, tensor<i32>, tensor<i32>) -> tensor<4x4xf32>
      %7 = stablehlo.dot_general %arg0, %6, contracting_dims = [1] x [1] : (tensor<6x4xf32>, tensor<4x4xf32>) -> tensor<6x4xf32>
      %8 = stablehlo.broadcast_in_dim %1#1, dims = [0] : (tensor<6xf32>) -> tensor<6x4xf32>
      %9 = stablehlo.subtract %7, %8 : tensor<6x4xf32>
      %10 = stablehlo.exponential %9 : tensor<6x4xf32>
      %cst_7 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
      %11 = stablehlo.reduce(%10 init: %cst_7) applies stablehlo.add across dimensions = [1] : (tensor<6x4xf32>, tensor<f32>) -> tensor<6xf32>
      %12 = stablehlo.add %iterArg_4, %11 : tensor<6xf32>
      %c_8 = stablehlo.constant dense<1> : tensor<i32>
      %13 = stablehlo.add %iterArg, %c_8 : tensor<i32>
      stablehlo.return %13, %12 : tensor<i32>, tensor<6xf32>
    }
    %cst_2 = stablehlo.constant dense<0.000000e+00> : tensor<6x4xf32>
    %c_3 = stablehlo.constant dense<0> : tensor<i32>
    %4:2 = stablehlo.while(%iterArg = %c_3, %iterArg_4 = %cst_2) : tensor<i32>, tensor<6x4xf32>
    cond {
      %c_5 = stablehlo.constant dense<2> : tensor<i32>
      %5 = stablehlo.compare LT, %iterArg, %c_5 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %5 : tensor<i1>
    } do {
      %c_5 = stablehlo.constant dense<4> : tensor<i32>
      %5 = stablehlo.multiply %iterArg, %c_5 : tensor<i32>
      %c_6 = stablehlo.constant dense<0> : tensor<i32>
      %6 = stablehlo.dynamic_slice %arg1, %5, %c_6, sizes = [4, 4] : (tensor<8x4xf32>, tensor<i32>, tensor<i32>) -> tensor<4x4xf32>
      %7 = stablehlo.dot_general %arg0, %6, contracting_dims = [1] x [1] : (tensor<6x4xf32>, tensor<4x4xf32>) -> tensor<6x4xf32>
      %8 = stablehlo.broadcast_in_dim %1#1, dims = [0] : (tensor<6xf32>) -> tensor<6x4xf32>
      %9 = stablehlo.subtract %7, %8 : tensor<6x4xf32>
      %10 = stablehlo.exponential %9 : tensor<6x4xf32>
      %11 = stablehlo.broadcast_in_dim %3#1, dims = [0] : (tensor<6xf32>) -> tensor<6x4xf32>
      %12 = stablehlo.divide %10, %11 : tensor<6x4xf32>
      %c_7 = stablehlo.constant dense<0> : tensor<i32>
      %13 = stablehlo.dynamic_slice %arg2, %5, %c_7, sizes = [4, 4] : (tensor<8x4xf32>, tensor<i32>, tensor<i32>) -> tensor<4x4xf32>
      %14 = stablehlo.dot_general %12, %13, contracting_dims = [1] x [0] : (tensor<6x4xf32>, tensor<4x4xf32>) -> tensor<6x4xf32>
      %15 = stablehlo.add %iterArg_4, %14 : tensor<6x4xf32>
      %c_8 = stablehlo.constant dense<1> : tensor<i32>
      %16 = stablehlo.add %iterArg, %c_8 : tensor<i32>
      stablehlo.return %16, %15 : tensor<i32>, tensor<6x4xf32>
    }
    return %4#1 : tensor<6x4xf32>
  }
}
