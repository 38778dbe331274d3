// split exponential along 1 by 4
func.func public @main(%x: tensor<6x4xf32>, %w: tensor<4x8xf32>, %v: tensor<8xf32>) -> tensor<6xf32> {
  %h = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<6x4xf32>, tensor<4x8xf32>) -> tensor<6x8xf32>
  %e = stablehlo.exponential %h : tensor<6x8xf32>
  %y = stablehlo.dot_general %e, %v, contracting_dims = [1] x [0] : (tensor<6x8xf32>, tensor<8xf32>) -> tensor<6xf32>
  return %y : tensor<6xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<6x4xf32>, %arg1: tensor<4x8xf32>, %arg2: tensor<8xf32>) -> tensor<6xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<6xf32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0:2 = stablehlo.while(%iterArg = %c, %iterArg_0 = %cst) : tensor<i32>, tensor<6xf32>
    cond {
      %c_1 = stablehlo.constant dense<2> : tensor<i32>
      %1 = stablehlo.compare LT, %iterArg, %c_1 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %1 : tensor<i1>
    } do {
      %c_1 = stablehlo.constant dense<4> : tensor<i32>
      %1 = stablehlo.multiply %iterArg, %c_1 : tensor<i32>
      %c_2 = stablehlo.constant dense<0> : tensor<i32>
      %2 = stablehlo.dynamic_slice %arg1, %c_2, %1, sizes = [4, 4] : (tensor<4x8xf32>, tensor<i32>, tensor<i32>) -> tensor<4x4xf32>
      %3 = stablehlo.dot_general %arg0, %2, contracting_dims = [1] x [0] : (tensor<6x4xf32>, tensor<4x4xf32>) -> tensor<6x4xf32>
      %4 = stablehlo.exponential %3 : tensor<6x4xf32>
      %c_3 = stablehlo.constant dense<0> : tensor<i32>
      %5 = stablehlo.dynamic_slice %arg2, %1, sizes = [4] : (tensor<8xf32>, tensor<i32>) -> tensor<4xf32>
      %6 = stablehlo.dot_general %4, %5, contracting_dims = [1] x [0] : (tensor<6x4xf32>, tensor<4xf32>) -> tensor<6xf32>
      %7 = stablehlo.add %iterArg_0, %6 : tensor<6xf32>
      %c_4 = stablehlo.constant dense<1> : tensor<i32>
      %8 = stablehlo.add %iterArg, %c_4 : tensor<i32>
      stablehlo.return %8, %7 : tensor<i32>, tensor<6xf32>
    }
    return %0#1 : tensor<6xf32>
  }
}
