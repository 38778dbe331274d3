// split exponential along 0 by 4
// The last start is clamped: rows 3 and up again, with equal values.
func.func public @main(%x: tensor<7x4xf32>, %w: tensor<4x8xf32>) -> tensor<7x8xf32> {
  %h = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<7x4xf32>, tensor<4x8xf32>) -> tensor<7x8xf32>
  %e = stablehlo.exponential %h : tensor<7x8xf32>
  %f = stablehlo.sine %e : tensor<7x8xf32>
  return %f : tensor<7x8xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<7x4xf32>, %arg1: tensor<4x8xf32>) -> tensor<7x8xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<7x8xf32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0:2 = stablehlo.while(%iterArg = %c, %iterArg_0 = %cst) : tensor<i32>, tensor<7x8xf32>
    cond {
      %c_1 = stablehlo.constant dense<2> : tensor<i32>
      %1 = stablehlo.compare LT, %iterArg, %c_1 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %1 : tensor<i1>
    } do {
      %c_1 = stablehlo.constant dense<4> : tensor<i32>
      %1 = stablehlo.multiply %iterArg, %c_1 : tensor<i32>
      %c_2 = stablehlo.constant dense<3> : tensor<i32>
      %2 = stablehlo.minimum %1, %c_2 : tensor<i32>
      %3 = stablehlo.subtract %1, %2 : tensor<i32>
      %c_3 = stablehlo.constant dense<0> : tensor<i32>
      %4 = stablehlo.dynamic_slice %arg0, %2, %c_3, sizes = [4, 4] : (tensor<7x4xf32>, tensor<i32>, tensor<i32>) -> tensor<4x4xf32>
      %5 = stablehlo.dot_general %4, %arg1, contracting_dims = [1] x [0] : (tensor<4x4xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
      %6 = stablehlo.exponential %5 : tensor<4x8xf32>
      %7 = stablehlo.sine %6 : tensor<4x8xf32>
      %c_4 = stablehlo.constant dense<0> : tensor<i32>
      %8 = stablehlo.dynamic_update_slice %iterArg_0, %7, %2, %c_4 : (tensor<7x8xf32>, tensor<4x8xf32>, tensor<i32>, tensor<i32>) -> tensor<7x8xf32>
      %c_5 = stablehlo.constant dense<1> : tensor<i32>
      %9 = stablehlo.add %iterArg, %c_5 : tensor<i32>
      stablehlo.return %9, %8 : tensor<i32>, tensor<7x8xf32>
    }
    return %0#1 : tensor<7x8xf32>
  }
}
