// rewrite blocked-top-k
// Integers are in order as they are, and whole blocks leave no rest. Of few elements the top-k stays.
func.func public @main(%x: tensor<8192xui16>, %y: tensor<4000xui16>) -> (tensor<2xi32>, tensor<2xi32>) {
  %v, %i = chlo.top_k(%x, k = 2) : tensor<8192xui16> -> (tensor<2xui16>, tensor<2xi32>)
  %w, %j = chlo.top_k(%y, k = 2) : tensor<4000xui16> -> (tensor<2xui16>, tensor<2xi32>)
  return %i, %j : tensor<2xi32>, tensor<2xi32>
}

// -----
module {
  func.func public @main(%arg0: tensor<8192xui16>, %arg1: tensor<4000xui16>) -> (tensor<2xi32>, tensor<2xi32>) {
    %c = stablehlo.constant dense<1> : tensor<2xi32>
    %c_0 = stablehlo.constant dense<64> : tensor<2xi32>
    %c_1 = stablehlo.constant dense<0> : tensor<ui16>
    %0 = stablehlo.reshape %arg0 : (tensor<8192xui16>) -> tensor<128x4x16xui16>
    %1 = stablehlo.reduce(%0 init: %c_1) applies stablehlo.maximum across dimensions = [1] : (tensor<128x4x16xui16>, tensor<ui16>) -> tensor<128x16xui16>
    %2 = stablehlo.reduce(%1 init: %c_1) applies stablehlo.maximum across dimensions = [1] : (tensor<128x16xui16>, tensor<ui16>) -> tensor<128xui16>
    %values, %indices = chlo.top_k(%2, k = 2) : tensor<128xui16> -> (tensor<2xui16>, tensor<2xi32>)
    %3 = "stablehlo.sort"(%indices) <{dimension = 0 : i64, is_stable = false}> ({
    ^bb0(%arg2: tensor<i32>, %arg3: tensor<i32>):
      %15 = stablehlo.compare LT, %arg2, %arg3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %15 : tensor<i1>
    }) : (tensor<2xi32>) -> tensor<2xi32>
    %4 = stablehlo.multiply %3, %c_0 : tensor<2xi32>
    %5 = stablehlo.reshape %4 : (tensor<2xi32>) -> tensor<2x1xi32>
    %6 = "stablehlo.gather"(%arg0, %5) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 64>}> : (tensor<8192xui16>, tensor<2x1xi32>) -> tensor<2x64xui16>
    %7 = stablehlo.reshape %6 : (tensor<2x64xui16>) -> tensor<128xui16>
    %values_2, %indices_3 = chlo.top_k(%7, k = 2) : tensor<128xui16> -> (tensor<2xui16>, tensor<2xi32>)
    %8 = stablehlo.divide %indices_3, %c_0 : tensor<2xi32>
    %9 = stablehlo.minimum %8, %c : tensor<2xi32>
    %10 = stablehlo.reshape %9 : (tensor<2xi32>) -> tensor<2x1xi32>
    %11 = "stablehlo.gather"(%3, %10) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 1>}> : (tensor<2xi32>, tensor<2x1xi32>) -> tensor<2xi32>
    %12 = stablehlo.multiply %11, %c_0 : tensor<2xi32>
    %13 = stablehlo.remainder %indices_3, %c_0 : tensor<2xi32>
    %14 = stablehlo.add %12, %13 : tensor<2xi32>
    %values_4, %indices_5 = chlo.top_k(%arg1, k = 2) : tensor<4000xui16> -> (tensor<2xui16>, tensor<2xi32>)
    return %14, %indices_5 : tensor<2xi32>, tensor<2xi32>
  }
}
