// split exponential along 0 by 4
// Rows lie on two devices: a chunk of 4 has 2 of each. Sums of columns are accumulated, positions are those of the whole.
sdy.mesh @mesh = <["x"=2]>
func.func public @main(%x: tensor<8x5xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}) -> (tensor<8x5xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}, tensor<5xf32>) {
  %zero = stablehlo.constant dense<0.000000e+00> : tensor<f32>
  %i = stablehlo.iota dim = 0 : tensor<8x5xf32>
  %e = stablehlo.exponential %x : tensor<8x5xf32>
  %y = stablehlo.add %e, %i : tensor<8x5xf32>
  %s = stablehlo.reduce(%y init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<8x5xf32>, tensor<f32>) -> tensor<5xf32>
  return %y, %s : tensor<8x5xf32>, tensor<5xf32>
}

// -----
module {
  sdy.mesh @mesh = <["x"=2]>
  func.func public @main(%arg0: tensor<8x5xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}) -> (tensor<8x5xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}, tensor<5xf32>) {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<8x5xf32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<5xf32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %1:3 = stablehlo.while(%iterArg = %c, %iterArg_1 = %cst_0, %iterArg_2 = %0) : tensor<i32>, tensor<8x5xf32>, tensor<5xf32>
    cond {
      %c_3 = stablehlo.constant dense<2> : tensor<i32>
      %2 = stablehlo.compare LT, %iterArg, %c_3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %2 : tensor<i1>
    } do {
      %c_3 = stablehlo.constant dense<2> : tensor<i32>
      %2 = stablehlo.multiply %iterArg, %c_3 : tensor<i32>
      %3 = stablehlo.iota dim = 0 : tensor<2x2xi32>
      %4 = stablehlo.iota dim = 1 : tensor<2x2xi32>
      %c_4 = stablehlo.constant dense<1> : tensor<i32>
      %5 = stablehlo.multiply %2, %c_4 : tensor<i32>
      %c_5 = stablehlo.constant dense<4> : tensor<i32>
      %6 = stablehlo.broadcast_in_dim %c_5, dims = [] : (tensor<i32>) -> tensor<2x2xi32>
      %7 = stablehlo.multiply %3, %6 : tensor<2x2xi32>
      %8 = stablehlo.broadcast_in_dim %5, dims = [] : (tensor<i32>) -> tensor<2x2xi32>
      %9 = stablehlo.add %7, %8 : tensor<2x2xi32>
      %10 = stablehlo.add %9, %4 : tensor<2x2xi32>
      %11 = stablehlo.reshape %10 : (tensor<2x2xi32>) -> tensor<4xi32>
      %12 = stablehlo.broadcast_in_dim %11, dims = [0] : (tensor<4xi32>) -> tensor<4x5xi32>
      %13 = stablehlo.convert %12 : (tensor<4x5xi32>) -> tensor<4x5xf32>
      %14 = stablehlo.reshape %arg0 : (tensor<8x5xf32>) -> tensor<2x4x5xf32>
      %c_6 = stablehlo.constant dense<0> : tensor<i32>
      %15 = stablehlo.dynamic_slice %14, %c_6, %2, %c_6, sizes = [2, 2, 5] : (tensor<2x4x5xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<2x2x5xf32>
      %16 = stablehlo.reshape %15 : (tensor<2x2x5xf32>) -> tensor<4x5xf32>
      %17 = stablehlo.exponential %16 : tensor<4x5xf32>
      %18 = stablehlo.add %17, %13 : tensor<4x5xf32>
      %19 = stablehlo.reshape %iterArg_1 : (tensor<8x5xf32>) -> tensor<2x4x5xf32>
      %20 = stablehlo.reshape %18 : (tensor<4x5xf32>) -> tensor<2x2x5xf32>
      %c_7 = stablehlo.constant dense<0> : tensor<i32>
      %21 = stablehlo.dynamic_update_slice %19, %20, %c_7, %2, %c_7 : (tensor<2x4x5xf32>, tensor<2x2x5xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<2x4x5xf32>
      %22 = stablehlo.reshape %21 : (tensor<2x4x5xf32>) -> tensor<8x5xf32>
      %cst_8 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
      %23 = stablehlo.reduce(%18 init: %cst_8) applies stablehlo.add across dimensions = [0] : (tensor<4x5xf32>, tensor<f32>) -> tensor<5xf32>
      %24 = stablehlo.add %iterArg_2, %23 : tensor<5xf32>
      %c_9 = stablehlo.constant dense<1> : tensor<i32>
      %25 = stablehlo.add %iterArg, %c_9 : tensor<i32>
      stablehlo.return %25, %22, %24 : tensor<i32>, tensor<8x5xf32>, tensor<5xf32>
    }
    return %1#1, %1#2 : tensor<8x5xf32>, tensor<5xf32>
  }
}
