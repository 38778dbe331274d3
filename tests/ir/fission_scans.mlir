// fission-scans
// Gradients of power iterations: the sum of outer products is not read in the loop, the vector of each step is stored.
func.func public @main(%k: tensor<6x6xf32>, %v: tensor<6xf32>, %xs: tensor<3x6xf32>) -> (tensor<6xf32>, tensor<6x6xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %none = stablehlo.constant dense<0.0> : tensor<6x6xf32>
  %0:4 = stablehlo.while(%i = %zero, %m = %k, %y = %v, %s = %none) : tensor<i32>, tensor<6x6xf32>, tensor<6xf32>, tensor<6x6xf32>
  cond {
    %c = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %1 = stablehlo.dynamic_slice %xs, %i, %zero, sizes = [1, 6] : (tensor<3x6xf32>, tensor<i32>, tensor<i32>) -> tensor<1x6xf32>
    %2 = stablehlo.reshape %1 : (tensor<1x6xf32>) -> tensor<6xf32>
    %3 = stablehlo.dot_general %y, %2, contracting_dims = [] x [] : (tensor<6xf32>, tensor<6xf32>) -> tensor<6x6xf32>
    %4 = stablehlo.add %s, %3 : tensor<6x6xf32>
    %5 = stablehlo.dot_general %m, %y, contracting_dims = [1] x [0] : (tensor<6x6xf32>, tensor<6xf32>) -> tensor<6xf32>
    %6 = stablehlo.tanh %5 : tensor<6xf32>
    %7 = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %7, %m, %6, %4 : tensor<i32>, tensor<6x6xf32>, tensor<6xf32>, tensor<6x6xf32>
  }
  return %0#2, %0#3 : tensor<6xf32>, tensor<6x6xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<6x6xf32>, %arg1: tensor<6xf32>, %arg2: tensor<3x6xf32>) -> (tensor<6xf32>, tensor<6x6xf32>) {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %c_0 = stablehlo.constant dense<1> : tensor<i32>
    %c_1 = stablehlo.constant dense<3> : tensor<i32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<6x6xf32>
    %cst_2 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<f32>) -> tensor<3x6xf32>
    %1:4 = stablehlo.while(%iterArg = %c, %iterArg_3 = %arg0, %iterArg_4 = %arg1, %iterArg_5 = %0) : tensor<i32>, tensor<6x6xf32>, tensor<6xf32>, tensor<3x6xf32>
    cond {
      %3 = stablehlo.compare LT, %iterArg, %c_1 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %3 : tensor<i1>
    } do {
      %3 = stablehlo.dot_general %iterArg_3, %iterArg_4, contracting_dims = [1] x [0] : (tensor<6x6xf32>, tensor<6xf32>) -> tensor<6xf32>
      %4 = stablehlo.tanh %3 : tensor<6xf32>
      %5 = stablehlo.add %iterArg, %c_0 : tensor<i32>
      %6 = stablehlo.reshape %iterArg_4 : (tensor<6xf32>) -> tensor<1x6xf32>
      %7 = stablehlo.dynamic_update_slice %iterArg_5, %6, %iterArg, %c : (tensor<3x6xf32>, tensor<1x6xf32>, tensor<i32>, tensor<i32>) -> tensor<3x6xf32>
      stablehlo.return %5, %iterArg_3, %4, %7 : tensor<i32>, tensor<6x6xf32>, tensor<6xf32>, tensor<3x6xf32>
    }
    %2:2 = stablehlo.while(%iterArg = %c, %iterArg_3 = %cst) : tensor<i32>, tensor<6x6xf32>
    cond {
      %3 = stablehlo.compare LT, %iterArg, %c_1 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %3 : tensor<i1>
    } do {
      %3 = stablehlo.dynamic_slice %1#3, %iterArg, %c, sizes = [1, 6] : (tensor<3x6xf32>, tensor<i32>, tensor<i32>) -> tensor<1x6xf32>
      %4 = stablehlo.reshape %3 : (tensor<1x6xf32>) -> tensor<6xf32>
      %5 = stablehlo.dynamic_slice %arg2, %iterArg, %c, sizes = [1, 6] : (tensor<3x6xf32>, tensor<i32>, tensor<i32>) -> tensor<1x6xf32>
      %6 = stablehlo.reshape %5 : (tensor<1x6xf32>) -> tensor<6xf32>
      %7 = stablehlo.dot_general %4, %6, contracting_dims = [] x [] : (tensor<6xf32>, tensor<6xf32>) -> tensor<6x6xf32>
      %8 = stablehlo.add %iterArg_3, %7 : tensor<6x6xf32>
      %9 = stablehlo.add %iterArg, %c_0 : tensor<i32>
      stablehlo.return %9, %8 : tensor<i32>, tensor<6x6xf32>
    }
    return %1#2, %2#1 : tensor<6xf32>, tensor<6x6xf32>
  }
}
