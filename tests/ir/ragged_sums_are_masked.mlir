// split exponential along 1 by 4
// Columns that come twice count for nothing the second time, in both operands: zero times infinity is no number.
func.func public @main(%x: tensor<6x7xf32>, %v: tensor<7xf32>) -> (tensor<6xf32>, tensor<6xf32>) {
  %zero = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %e = stablehlo.exponential %x : tensor<6x7xf32>
  %y = stablehlo.dot_general %e, %v, contracting_dims = [1] x [0] : (tensor<6x7xf32>, tensor<7xf32>) -> tensor<6xf32>
  %m = stablehlo.reduce(%e init: %zero) applies stablehlo.maximum across dimensions = [1] : (tensor<6x7xf32>, tensor<f32>) -> tensor<6xf32>
  return %y, %m : tensor<6xf32>, tensor<6xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<6x7xf32>, %arg1: tensor<7xf32>) -> (tensor<6xf32>, tensor<6xf32>) {
    %cst = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<6xf32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<6xf32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %1:3 = stablehlo.while(%iterArg = %c, %iterArg_1 = %cst_0, %iterArg_2 = %0) : tensor<i32>, tensor<6xf32>, tensor<6xf32>
    cond {
      %c_3 = stablehlo.constant dense<2> : tensor<i32>
      %2 = stablehlo.compare LT, %iterArg, %c_3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %2 : tensor<i1>
    } do {
      %c_3 = stablehlo.constant dense<4> : tensor<i32>
      %2 = stablehlo.multiply %iterArg, %c_3 : tensor<i32>
      %c_4 = stablehlo.constant dense<3> : tensor<i32>
      %3 = stablehlo.minimum %2, %c_4 : tensor<i32>
      %4 = stablehlo.subtract %2, %3 : tensor<i32>
      %c_5 = stablehlo.constant dense<0> : tensor<i32>
      %5 = stablehlo.dynamic_slice %arg0, %c_5, %3, sizes = [6, 4] : (tensor<6x7xf32>, tensor<i32>, tensor<i32>) -> tensor<6x4xf32>
      %6 = stablehlo.exponential %5 : tensor<6x4xf32>
      %cst_6 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
      %7 = stablehlo.iota dim = 0 : tensor<4xi32>
      %8 = stablehlo.broadcast_in_dim %4, dims = [] : (tensor<i32>) -> tensor<4xi32>
      %9 = stablehlo.compare GE, %7, %8 : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi1>
      %10 = stablehlo.broadcast_in_dim %9, dims = [1] : (tensor<4xi1>) -> tensor<6x4xi1>
      %11 = stablehlo.broadcast_in_dim %cst_6, dims = [] : (tensor<f32>) -> tensor<6x4xf32>
      %12 = stablehlo.select %10, %6, %11 : tensor<6x4xi1>, tensor<6x4xf32>
      %c_7 = stablehlo.constant dense<0> : tensor<i32>
      %13 = stablehlo.dynamic_slice %arg1, %3, sizes = [4] : (tensor<7xf32>, tensor<i32>) -> tensor<4xf32>
      %cst_8 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
      %14 = stablehlo.iota dim = 0 : tensor<4xi32>
      %15 = stablehlo.broadcast_in_dim %4, dims = [] : (tensor<i32>) -> tensor<4xi32>
      %16 = stablehlo.compare GE, %14, %15 : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi1>
      %17 = stablehlo.broadcast_in_dim %16, dims = [0] : (tensor<4xi1>) -> tensor<4xi1>
      %18 = stablehlo.broadcast_in_dim %cst_8, dims = [] : (tensor<f32>) -> tensor<4xf32>
      %19 = stablehlo.select %17, %13, %18 : tensor<4xi1>, tensor<4xf32>
      %20 = stablehlo.dot_general %12, %19, contracting_dims = [1] x [0] : (tensor<6x4xf32>, tensor<4xf32>) -> tensor<6xf32>
      %21 = stablehlo.iota dim = 0 : tensor<4xi32>
      %22 = stablehlo.broadcast_in_dim %4, dims = [] : (tensor<i32>) -> tensor<4xi32>
      %23 = stablehlo.compare GE, %21, %22 : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi1>
      %24 = stablehlo.broadcast_in_dim %23, dims = [1] : (tensor<4xi1>) -> tensor<6x4xi1>
      %25 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<6x4xf32>
      %26 = stablehlo.select %24, %6, %25 : tensor<6x4xi1>, tensor<6x4xf32>
      %27 = stablehlo.reduce(%26 init: %cst) applies stablehlo.maximum across dimensions = [1] : (tensor<6x4xf32>, tensor<f32>) -> tensor<6xf32>
      %28 = stablehlo.add %iterArg_1, %20 : tensor<6xf32>
      %29 = stablehlo.maximum %iterArg_2, %27 : tensor<6xf32>
      %c_9 = stablehlo.constant dense<1> : tensor<i32>
      %30 = stablehlo.add %iterArg, %c_9 : tensor<i32>
      stablehlo.return %30, %28, %29 : tensor<i32>, tensor<6xf32>, tensor<6xf32>
    }
    return %1#1, %1#2 : tensor<6xf32>, tensor<6xf32>
  }
}
