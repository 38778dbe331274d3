// split exponential along 0 by 2
// Rows of K + Kᵀ need rows of K and columns of K: each chunk computes both.
func.func public @main(%x: tensor<6x3xf32>) -> tensor<6xf32> {
  %zero = stablehlo.constant dense<0.000000e+00> : tensor<f32>
  %g = stablehlo.dot_general %x, %x, contracting_dims = [1] x [1] : (tensor<6x3xf32>, tensor<6x3xf32>) -> tensor<6x6xf32>
  %k = stablehlo.exponential %g : tensor<6x6xf32>
  %t = stablehlo.transpose %k, dims = [1, 0] : (tensor<6x6xf32>) -> tensor<6x6xf32>
  %s = stablehlo.add %k, %t : tensor<6x6xf32>
  %y = stablehlo.reduce(%s init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<6x6xf32>, tensor<f32>) -> tensor<6xf32>
  return %y : tensor<6xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<6x3xf32>) -> tensor<6xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<6xf32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0:2 = stablehlo.while(%iterArg = %c, %iterArg_1 = %cst_0) : tensor<i32>, tensor<6xf32>
    cond {
      %c_2 = stablehlo.constant dense<3> : tensor<i32>
      %1 = stablehlo.compare LT, %iterArg, %c_2 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %1 : tensor<i1>
    } do {
      %c_2 = stablehlo.constant dense<2> : tensor<i32>
      %1 = stablehlo.multiply %iterArg, %c_2 : tensor<i32>
      %c_3 = stablehlo.constant dense<0> : tensor<i32>
      %2 = stablehlo.dynamic_slice %arg0, %1, %c_3, sizes = [2, 3] : (tensor<6x3xf32>, tensor<i32>, tensor<i32>) -> tensor<2x3xf32>
      %3 = stablehlo.dot_general %2, %arg0, contracting_dims = [1] x [1] : (tensor<2x3xf32>, tensor<6x3xf32>) -> tensor<2x6xf32>
      %4 = stablehlo.dot_general %arg0, %2, contracting_dims = [1] x [1] : (tensor<6x3xf32>, tensor<2x3xf32>) -> tensor<6x2xf32>
      %5 = stablehlo.exponential %3 : tensor<2x6xf32>
      %6 = stablehlo.exponential %4 : tensor<6x2xf32>
      %7 = stablehlo.transpose %6, dims = [1, 0] : (tensor<6x2xf32>) -> tensor<2x6xf32>
      %8 = stablehlo.add %5, %7 : tensor<2x6xf32>
      %9 = stablehlo.reduce(%8 init: %cst) applies stablehlo.add across dimensions = [1] : (tensor<2x6xf32>, tensor<f32>) -> tensor<2xf32>
      %c_4 = stablehlo.constant dense<0> : tensor<i32>
      %10 = stablehlo.dynamic_update_slice %iterArg_1, %9, %1 : (tensor<6xf32>, tensor<2xf32>, tensor<i32>) -> tensor<6xf32>
      %c_5 = stablehlo.constant dense<1> : tensor<i32>
      %11 = stablehlo.add %iterArg, %c_5 : tensor<i32>
      stablehlo.return %11, %10 : tensor<i32>, tensor<6xf32>
    }
    return %0#1 : tensor<6xf32>
  }
}
