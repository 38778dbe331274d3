// split exponential along 0 by 2
// Two of the 4 outer elements are 6 of the 12 rows of the merged dimension.
func.func public @main(%x: tensor<4x3x5xf32>, %w: tensor<5x6xf32>) -> tensor<12x6xf32> {
  %e = stablehlo.exponential %x : tensor<4x3x5xf32>
  %r = stablehlo.reshape %e : (tensor<4x3x5xf32>) -> tensor<12x5xf32>
  %y = stablehlo.dot_general %r, %w, contracting_dims = [1] x [0] : (tensor<12x5xf32>, tensor<5x6xf32>) -> tensor<12x6xf32>
  return %y : tensor<12x6xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<4x3x5xf32>, %arg1: tensor<5x6xf32>) -> tensor<12x6xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<12x6xf32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0:2 = stablehlo.while(%iterArg = %c, %iterArg_0 = %cst) : tensor<i32>, tensor<12x6xf32>
    cond {
      %c_1 = stablehlo.constant dense<2> : tensor<i32>
      %1 = stablehlo.compare LT, %iterArg, %c_1 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %1 : tensor<i1>
    } do {
      %c_1 = stablehlo.constant dense<2> : tensor<i32>
      %1 = stablehlo.multiply %iterArg, %c_1 : tensor<i32>
      %c_2 = stablehlo.constant dense<0> : tensor<i32>
      %2 = stablehlo.dynamic_slice %arg0, %1, %c_2, %c_2, sizes = [2, 3, 5] : (tensor<4x3x5xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<2x3x5xf32>
      %3 = stablehlo.exponential %2 : tensor<2x3x5xf32>
      %4 = stablehlo.reshape %3 : (tensor<2x3x5xf32>) -> tensor<6x5xf32>
      %5 = stablehlo.dot_general %4, %arg1, contracting_dims = [1] x [0] : (tensor<6x5xf32>, tensor<5x6xf32>) -> tensor<6x6xf32>
      %c_3 = stablehlo.constant dense<3> : tensor<i32>
      %6 = stablehlo.multiply %1, %c_3 : tensor<i32>
      %c_4 = stablehlo.constant dense<0> : tensor<i32>
      %7 = stablehlo.dynamic_update_slice %iterArg_0, %5, %6, %c_4 : (tensor<12x6xf32>, tensor<6x6xf32>, tensor<i32>, tensor<i32>) -> tensor<12x6xf32>
      %c_5 = stablehlo.constant dense<1> : tensor<i32>
      %8 = stablehlo.add %iterArg, %c_5 : tensor<i32>
      stablehlo.return %8, %7 : tensor<i32>, tensor<12x6xf32>
    }
    return %0#1 : tensor<12x6xf32>
  }
}
