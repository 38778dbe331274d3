// split exponential along 0 by 4
// The sum starts from 5: once, in the carry; partial sums start from 0.
func.func public @main(%x: tensor<6x4xf32>) -> tensor<4xf32> {
  %five = stablehlo.constant dense<5.000000e+00> : tensor<f32>
  %e = stablehlo.exponential %x : tensor<6x4xf32>
  %y = stablehlo.reduce(%e init: %five) applies stablehlo.add across dimensions = [0] : (tensor<6x4xf32>, tensor<f32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<6x4xf32>) -> tensor<4xf32> {
    %cst = stablehlo.constant dense<5.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<4xf32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %1:2 = stablehlo.while(%iterArg = %c, %iterArg_0 = %0) : tensor<i32>, tensor<4xf32>
    cond {
      %c_1 = stablehlo.constant dense<2> : tensor<i32>
      %2 = stablehlo.compare LT, %iterArg, %c_1 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %2 : tensor<i1>
    } do {
      %c_1 = stablehlo.constant dense<4> : tensor<i32>
      %2 = stablehlo.multiply %iterArg, %c_1 : tensor<i32>
      %c_2 = stablehlo.constant dense<2> : tensor<i32>
      %3 = stablehlo.minimum %2, %c_2 : tensor<i32>
      %4 = stablehlo.subtract %2, %3 : tensor<i32>
      %5 = stablehlo.compare GT, %2, %c_2 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      %6 = stablehlo.subtract %c_2, %3 : tensor<i32>
      %c_3 = stablehlo.constant dense<4> : tensor<i32>
      %7 = stablehlo.minimum %6, %c_3 : tensor<i32>
      %c_4 = stablehlo.constant dense<4> : tensor<i32>
      %8 = stablehlo.select %5, %c_4, %7 : tensor<i1>, tensor<i32>
      %c_5 = stablehlo.constant dense<0> : tensor<i32>
      %9 = stablehlo.dynamic_slice %arg0, %3, %c_5, sizes = [4, 4] : (tensor<6x4xf32>, tensor<i32>, tensor<i32>) -> tensor<4x4xf32>
      %10 = stablehlo.exponential %9 : tensor<4x4xf32>
      %cst_6 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
      %11 = stablehlo.broadcast_in_dim %cst_6, dims = [] : (tensor<f32>) -> tensor<4x4xf32>
      %12 = stablehlo.iota dim = 0 : tensor<4xi32>
      %13 = stablehlo.broadcast_in_dim %8, dims = [] : (tensor<i32>) -> tensor<4xi32>
      %14 = stablehlo.compare LT, %12, %13 : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi1>
      %15 = stablehlo.broadcast_in_dim %14, dims = [0] : (tensor<4xi1>) -> tensor<4x4xi1>
      %16 = stablehlo.select %15, %10, %11 : tensor<4x4xi1>, tensor<4x4xf32>
      %cst_7 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
      %17 = stablehlo.reduce(%16 init: %cst_7) applies stablehlo.add across dimensions = [0] : (tensor<4x4xf32>, tensor<f32>) -> tensor<4xf32>
      %18 = stablehlo.add %iterArg_0, %17 : tensor<4xf32>
      %c_8 = stablehlo.constant dense<1> : tensor<i32>
      %19 = stablehlo.add %iterArg, %c_8 : tensor<i32>
      stablehlo.return %19, %18 : tensor<i32>, tensor<4xf32>
    }
    return %1#1 : tensor<4xf32>
  }
}
