// split add along 0 by 2
// Iotas are shifted by the chunk's start, splats made smaller, dense constants sliced.
func.func public @main(%x: tensor<6x4xf32>) -> tensor<6xf32> {
  %zero = stablehlo.constant dense<0.000000e+00> : tensor<f32>
  %two = stablehlo.constant dense<2.000000e+00> : tensor<6x4xf32>
  %dense = stablehlo.constant dense<[[0.0, 1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 7.0], [8.0, 9.0, 0.0, 1.0], [2.0, 3.0, 4.0, 5.0], [6.0, 7.0, 8.0, 9.0], [1.0, 0.0, 3.0, 2.0]]> : tensor<6x4xf32>
  %row = stablehlo.iota dim = 0 : tensor<6x4xf32>
  %column = stablehlo.iota dim = 1 : tensor<6x4xf32>
  %a = stablehlo.multiply %x, %two : tensor<6x4xf32>
  %b = stablehlo.add %a, %dense : tensor<6x4xf32>
  %c = stablehlo.add %b, %row : tensor<6x4xf32>
  %d = stablehlo.add %c, %column : tensor<6x4xf32>
  %y = stablehlo.reduce(%d init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<6x4xf32>, tensor<f32>) -> tensor<6xf32>
  return %y : tensor<6xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<6x4xf32>) -> tensor<6xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %cst_0 = stablehlo.constant dense<[[0.000000e+00, 1.000000e+00, 2.000000e+00, 3.000000e+00], [4.000000e+00, 5.000000e+00, 6.000000e+00, 7.000000e+00], [8.000000e+00, 9.000000e+00, 0.000000e+00, 1.000000e+00], [2.000000e+00, 3.000000e+00, 4.000000e+00, 5.000000e+00], [6.000000e+00, 7.000000e+00, 8.000000e+00, 9.000000e+00], [1.000000e+00, 0.000000e+00, 3.000000e+00, 2.000000e+00]]> : tensor<6x4xf32>
    %cst_1 = stablehlo.constant dense<0.000000e+00> : tensor<6xf32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0:2 = stablehlo.while(%iterArg = %c, %iterArg_2 = %cst_1) : tensor<i32>, tensor<6xf32>
    cond {
      %c_3 = stablehlo.constant dense<3> : tensor<i32>
      %1 = stablehlo.compare LT, %iterArg, %c_3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %1 : tensor<i1>
    } do {
      %c_3 = stablehlo.constant dense<2> : tensor<i32>
      %1 = stablehlo.multiply %iterArg, %c_3 : tensor<i32>
      %cst_4 = stablehlo.constant dense<2.000000e+00> : tensor<2x4xf32>
      %2 = stablehlo.iota dim = 0 : tensor<2x4xi32>
      %c_5 = stablehlo.constant dense<1> : tensor<i32>
      %3 = stablehlo.multiply %1, %c_5 : tensor<i32>
      %4 = stablehlo.broadcast_in_dim %3, dims = [] : (tensor<i32>) -> tensor<2x4xi32>
      %5 = stablehlo.add %2, %4 : tensor<2x4xi32>
      %6 = stablehlo.convert %5 : (tensor<2x4xi32>) -> tensor<2x4xf32>
      %7 = stablehlo.iota dim = 1 : tensor<2x4xf32>
      %c_6 = stablehlo.constant dense<0> : tensor<i32>
      %8 = stablehlo.dynamic_slice %arg0, %1, %c_6, sizes = [2, 4] : (tensor<6x4xf32>, tensor<i32>, tensor<i32>) -> tensor<2x4xf32>
      %9 = stablehlo.multiply %8, %cst_4 : tensor<2x4xf32>
      %c_7 = stablehlo.constant dense<0> : tensor<i32>
      %10 = stablehlo.dynamic_slice %cst_0, %1, %c_7, sizes = [2, 4] : (tensor<6x4xf32>, tensor<i32>, tensor<i32>) -> tensor<2x4xf32>
      %11 = stablehlo.add %9, %10 : tensor<2x4xf32>
      %12 = stablehlo.add %11, %6 : tensor<2x4xf32>
      %13 = stablehlo.add %12, %7 : tensor<2x4xf32>
      %14 = stablehlo.reduce(%13 init: %cst) applies stablehlo.add across dimensions = [1] : (tensor<2x4xf32>, tensor<f32>) -> tensor<2xf32>
      %c_8 = stablehlo.constant dense<0> : tensor<i32>
      %15 = stablehlo.dynamic_update_slice %iterArg_2, %14, %1 : (tensor<6xf32>, tensor<2xf32>, tensor<i32>) -> tensor<6xf32>
      %c_9 = stablehlo.constant dense<1> : tensor<i32>
      %16 = stablehlo.add %iterArg, %c_9 : tensor<i32>
      stablehlo.return %16, %15 : tensor<i32>, tensor<6xf32>
    }
    return %0#1 : tensor<6xf32>
  }
}
