// split subtract along 0 by 4
func.func public @main(%x: tensor<14x3xf32>) -> tensor<12x3xf32> {
  %a = stablehlo.slice %x [0:12, 0:3] : (tensor<14x3xf32>) -> tensor<12x3xf32>
  %b = stablehlo.slice %x [2:14, 0:3] : (tensor<14x3xf32>) -> tensor<12x3xf32>
  %d = stablehlo.subtract %b, %a : tensor<12x3xf32>
  %y = stablehlo.sine %d : tensor<12x3xf32>
  return %y : tensor<12x3xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<14x3xf32>) -> tensor<12x3xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<12x3xf32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0:2 = stablehlo.while(%iterArg = %c, %iterArg_0 = %cst) : tensor<i32>, tensor<12x3xf32>
    cond {
      %c_1 = stablehlo.constant dense<3> : tensor<i32>
      %1 = stablehlo.compare LT, %iterArg, %c_1 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %1 : tensor<i1>
    } do {
      %c_1 = stablehlo.constant dense<4> : tensor<i32>
      %1 = stablehlo.multiply %iterArg, %c_1 : tensor<i32>
      %c_2 = stablehlo.constant dense<10> : tensor<i32>
      %2 = stablehlo.minimum %1, %c_2 : tensor<i32>
      %c_3 = stablehlo.constant dense<0> : tensor<i32>
      %3 = stablehlo.maximum %2, %c_3 : tensor<i32>
      %c_4 = stablehlo.constant dense<0> : tensor<i32>
      %4 = stablehlo.dynamic_slice %arg0, %3, %c_4, sizes = [4, 3] : (tensor<14x3xf32>, tensor<i32>, tensor<i32>) -> tensor<4x3xf32>
      %c_5 = stablehlo.constant dense<-2> : tensor<i32>
      %5 = stablehlo.subtract %1, %c_5 : tensor<i32>
      %c_6 = stablehlo.constant dense<10> : tensor<i32>
      %6 = stablehlo.minimum %5, %c_6 : tensor<i32>
      %c_7 = stablehlo.constant dense<0> : tensor<i32>
      %7 = stablehlo.maximum %6, %c_7 : tensor<i32>
      %c_8 = stablehlo.constant dense<0> : tensor<i32>
      %8 = stablehlo.dynamic_slice %arg0, %7, %c_8, sizes = [4, 3] : (tensor<14x3xf32>, tensor<i32>, tensor<i32>) -> tensor<4x3xf32>
      %9 = stablehlo.subtract %8, %4 : tensor<4x3xf32>
      %10 = stablehlo.sine %9 : tensor<4x3xf32>
      %c_9 = stablehlo.constant dense<0> : tensor<i32>
      %11 = stablehlo.dynamic_update_slice %iterArg_0, %10, %1, %c_9 : (tensor<12x3xf32>, tensor<4x3xf32>, tensor<i32>, tensor<i32>) -> tensor<12x3xf32>
      %c_10 = stablehlo.constant dense<1> : tensor<i32>
      %12 = stablehlo.add %iterArg, %c_10 : tensor<i32>
      stablehlo.return %12, %11 : tensor<i32>, tensor<12x3xf32>
    }
    return %0#1 : tensor<12x3xf32>
  }
}
