// slice-as-integers
func.func public @main(%x: tensor<8x16xbf16>) -> tensor<8x16xbf16> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %eight = stablehlo.constant dense<8> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %o = %x) : tensor<i32>, tensor<8x16xbf16>
  cond {
    %c = stablehlo.compare LT, %i, %eight : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %row = stablehlo.dynamic_slice %x, %i, %zero, sizes = [1, 16] : (tensor<8x16xbf16>, tensor<i32>, tensor<i32>) -> tensor<1x16xbf16>
    %t = stablehlo.tanh %row : tensor<1x16xbf16>
    %o1 = stablehlo.dynamic_update_slice %o, %t, %i, %zero : (tensor<8x16xbf16>, tensor<1x16xbf16>, tensor<i32>, tensor<i32>) -> tensor<8x16xbf16>
    %next = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %next, %o1 : tensor<i32>, tensor<8x16xbf16>
  }
  return %r#1 : tensor<8x16xbf16>
}

// -----
module {
  func.func public @main(%arg0: tensor<8x16xbf16>) -> tensor<8x16xbf16> {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %c_0 = stablehlo.constant dense<1> : tensor<i32>
    %c_1 = stablehlo.constant dense<8> : tensor<i32>
    %0:2 = stablehlo.while(%iterArg = %c, %iterArg_2 = %arg0) : tensor<i32>, tensor<8x16xbf16>
    cond {
      %1 = stablehlo.compare LT, %iterArg, %c_1 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %1 : tensor<i1>
    } do {
      %1:2 = stablehlo.optimization_barrier %arg0, %iterArg : tensor<8x16xbf16>, tensor<i32>
      %2 = stablehlo.bitcast_convert %1#0 : (tensor<8x16xbf16>) -> tensor<8x16xi16>
      %3 = stablehlo.dynamic_slice %2, %1#1, %c, sizes = [1, 16] : (tensor<8x16xi16>, tensor<i32>, tensor<i32>) -> tensor<1x16xi16>
      %4 = stablehlo.bitcast_convert %3 : (tensor<1x16xi16>) -> tensor<1x16xbf16>
      %5 = stablehlo.tanh %4 : tensor<1x16xbf16>
      %6 = stablehlo.bitcast_convert %iterArg_2 : (tensor<8x16xbf16>) -> tensor<8x16xi16>
      %7 = stablehlo.bitcast_convert %5 : (tensor<1x16xbf16>) -> tensor<1x16xi16>
      %8 = stablehlo.dynamic_update_slice %6, %7, %iterArg, %c : (tensor<8x16xi16>, tensor<1x16xi16>, tensor<i32>, tensor<i32>) -> tensor<8x16xi16>
      %9 = stablehlo.bitcast_convert %8 : (tensor<8x16xi16>) -> tensor<8x16xbf16>
      %10 = stablehlo.add %iterArg, %c_0 : tensor<i32>
      stablehlo.return %10, %9 : tensor<i32>, tensor<8x16xbf16>
    }
    return %0#1 : tensor<8x16xbf16>
  }
}
