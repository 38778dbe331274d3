// split exponential along 1 by 4
// Partial sums of bf16 in f32, rounded once at the end.
func.func public @main(%x: tensor<6x8xbf16>, %v: tensor<8x2xbf16>) -> tensor<6x2xbf16> {
  %e = stablehlo.exponential %x : tensor<6x8xbf16>
  %y = stablehlo.dot_general %e, %v, contracting_dims = [1] x [0] : (tensor<6x8xbf16>, tensor<8x2xbf16>) -> tensor<6x2xbf16>
  return %y : tensor<6x2xbf16>
}

// -----
module {
  func.func public @main(%arg0: tensor<6x8xbf16>, %arg1: tensor<8x2xbf16>) -> tensor<6x2xbf16> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<6x2xf32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0:2 = stablehlo.while(%iterArg = %c, %iterArg_0 = %cst) : tensor<i32>, tensor<6x2xf32>
    cond {
      %c_1 = stablehlo.constant dense<2> : tensor<i32>
      %2 = stablehlo.compare LT, %iterArg, %c_1 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %2 : tensor<i1>
    } do {
      %c_1 = stablehlo.constant dense<4> : tensor<i32>
      %2 = stablehlo.multiply %iterArg, %c_1 : tensor<i32>
      %c_2 = stablehlo.constant dense<0> : tensor<i32>
      %3 = stablehlo.dynamic_slice %arg0, %c_2, %2, sizes = [6, 4] : (tensor<6x8xbf16>, tensor<i32>, tensor<i32>) -> tensor<6x4xbf16>
      %4 = stablehlo.exponential %3 : tensor<6x4xbf16>
      %c_3 = stablehlo.constant dense<0> : tensor<i32>
      %5 = stablehlo.dynamic_slice %arg1, %2, %c_3, sizes = [4, 2] : (tensor<8x2xbf16>, tensor<i32>, tensor<i32>) -> tensor<4x2xbf16>
      %6 = stablehlo.dot_general %4, %5, contracting_dims = [1] x [0] : (tensor<6x4xbf16>, tensor<4x2xbf16>) -> tensor<6x2xf32>
      %7 = stablehlo.add %iterArg_0, %6 : tensor<6x2xf32>
      %c_4 = stablehlo.constant dense<1> : tensor<i32>
      %8 = stablehlo.add %iterArg, %c_4 : tensor<i32>
      stablehlo.return %8, %7 : tensor<i32>, tensor<6x2xf32>
    }
    %1 = stablehlo.convert %0#1 : (tensor<6x2xf32>) -> tensor<6x2xbf16>
    return %1 : tensor<6x2xbf16>
  }
}
