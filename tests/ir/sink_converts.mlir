// sink-converts
func.func public @main(%x: tensor<64x128xf32>, %weights: tensor<8x128x128xf32>, %shared: tensor<128x128xf32>) -> tensor<64x128xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %steps = stablehlo.constant dense<8> : tensor<i32>
  %result:2 = stablehlo.while(%i = %zero, %y = %x) : tensor<i32>, tensor<64x128xf32>
    cond {
      %go = stablehlo.compare LT, %i, %steps : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %go : tensor<i1>
    } do {
      %w = stablehlo.dynamic_slice %weights, %i, %zero, %zero, sizes = [1, 128, 128] : (tensor<8x128x128xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x128x128xf32>
      %m = stablehlo.reshape %w : (tensor<1x128x128xf32>) -> tensor<128x128xf32>
      %h = stablehlo.dot_general %y, %m, contracting_dims = [1] x [0] : (tensor<64x128xf32>, tensor<128x128xf32>) -> tensor<64x128xf32>
      %z = stablehlo.dot_general %h, %shared, contracting_dims = [1] x [0] : (tensor<64x128xf32>, tensor<128x128xf32>) -> tensor<64x128xf32>
      %n = stablehlo.add %i, %one : tensor<i32>
      stablehlo.return %n, %z : tensor<i32>, tensor<64x128xf32>
    }
  return %result#1 : tensor<64x128xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<64x128xf32>, %arg1: tensor<8x128x128xf32>, %arg2: tensor<128x128xf32>) -> tensor<64x128xf32> {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %c_0 = stablehlo.constant dense<1> : tensor<i32>
    %c_1 = stablehlo.constant dense<8> : tensor<i32>
    %0:2 = stablehlo.while(%iterArg = %c, %iterArg_2 = %arg0) : tensor<i32>, tensor<64x128xf32>
    cond {
      %1 = stablehlo.compare LT, %iterArg, %c_1 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %1 : tensor<i1>
    } do {
      %1 = stablehlo.dynamic_slice %arg1, %iterArg, %c, %c, sizes = [1, 128, 128] : (tensor<8x128x128xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x128x128xf32>
      %2 = stablehlo.bitcast_convert %1 : (tensor<1x128x128xf32>) -> tensor<1x128x128xui32>
      %3 = stablehlo.optimization_barrier %2 : tensor<1x128x128xui32>
      %4 = stablehlo.bitcast_convert %3 : (tensor<1x128x128xui32>) -> tensor<1x128x128xf32>
      %5 = stablehlo.reshape %4 : (tensor<1x128x128xf32>) -> tensor<128x128xf32>
      %6 = stablehlo.dot_general %iterArg_2, %5, contracting_dims = [1] x [0] : (tensor<64x128xf32>, tensor<128x128xf32>) -> tensor<64x128xf32>
      %7 = stablehlo.dot_general %6, %arg2, contracting_dims = [1] x [0] : (tensor<64x128xf32>, tensor<128x128xf32>) -> tensor<64x128xf32>
      %8 = stablehlo.add %iterArg, %c_0 : tensor<i32>
      stablehlo.return %8, %7 : tensor<i32>, tensor<64x128xf32>
    }
    return %0#1 : tensor<64x128xf32>
  }
}
