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
      %5 = stablehlo.compare GT, %2, %c_4 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      %6 = stablehlo.subtract %c_4, %3 : tensor<i32>
      %c_5 = stablehlo.constant dense<4> : tensor<i32>
      %7 = stablehlo.minimum %6, %c_5 : tensor<i32>
      %c_6 = stablehlo.constant dense<4> : tensor<i32>
      %8 = stablehlo.select %5, %c_6, %7 : tensor<i1>, tensor<i32>
      %c_7 = stablehlo.constant dense<0> : tensor<i32>
      %9 = stablehlo.dynamic_slice %arg0, %c_7, %3, sizes = [6, 4] : (tensor<6x7xf32>, tensor<i32>, tensor<i32>) -> tensor<6x4xf32>
      %10 = stablehlo.exponential %9 : tensor<6x4xf32>
      %cst_8 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
      %11 = stablehlo.broadcast_in_dim %cst_8, dims = [] : (tensor<f32>) -> tensor<6x4xf32>
      %12 = stablehlo.iota dim = 0 : tensor<4xi32>
      %13 = stablehlo.broadcast_in_dim %8, dims = [] : (tensor<i32>) -> tensor<4xi32>
      %14 = stablehlo.compare LT, %12, %13 : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi1>
      %15 = stablehlo.broadcast_in_dim %14, dims = [1] : (tensor<4xi1>) -> tensor<6x4xi1>
      %16 = stablehlo.select %15, %10, %11 : tensor<6x4xi1>, tensor<6x4xf32>
      %c_9 = stablehlo.constant dense<0> : tensor<i32>
      %17 = stablehlo.dynamic_slice %arg1, %3, sizes = [4] : (tensor<7xf32>, tensor<i32>) -> tensor<4xf32>
      %cst_10 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
      %18 = stablehlo.broadcast_in_dim %cst_10, dims = [] : (tensor<f32>) -> tensor<4xf32>
      %19 = stablehlo.iota dim = 0 : tensor<4xi32>
      %20 = stablehlo.broadcast_in_dim %8, dims = [] : (tensor<i32>) -> tensor<4xi32>
      %21 = stablehlo.compare LT, %19, %20 : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi1>
      %22 = stablehlo.broadcast_in_dim %21, dims = [0] : (tensor<4xi1>) -> tensor<4xi1>
      %23 = stablehlo.select %22, %17, %18 : tensor<4xi1>, tensor<4xf32>
      %24 = stablehlo.dot_general %16, %23, contracting_dims = [1] x [0] : (tensor<6x4xf32>, tensor<4xf32>) -> tensor<6xf32>
      %25 = stablehlo.add %iterArg_1, %24 : tensor<6xf32>
      %26 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<6x4xf32>
      %27 = stablehlo.iota dim = 0 : tensor<4xi32>
      %28 = stablehlo.broadcast_in_dim %8, dims = [] : (tensor<i32>) -> tensor<4xi32>
      %29 = stablehlo.compare LT, %27, %28 : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi1>
      %30 = stablehlo.broadcast_in_dim %29, dims = [1] : (tensor<4xi1>) -> tensor<6x4xi1>
      %31 = stablehlo.select %30, %10, %26 : tensor<6x4xi1>, tensor<6x4xf32>
      %32 = stablehlo.reduce(%31 init: %cst) applies stablehlo.maximum across dimensions = [1] : (tensor<6x4xf32>, tensor<f32>) -> tensor<6xf32>
      %33 = stablehlo.maximum %iterArg_2, %32 : tensor<6xf32>
      %c_11 = stablehlo.constant dense<1> : tensor<i32>
      %34 = stablehlo.add %iterArg, %c_11 : tensor<i32>
      stablehlo.return %34, %25, %33 : tensor<i32>, tensor<6xf32>, tensor<6xf32>
    }
    return %1#1, %1#2 : tensor<6xf32>, tensor<6xf32>
  }
}
