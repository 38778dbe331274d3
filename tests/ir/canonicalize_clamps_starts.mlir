// canonicalize
// Starts that may be out of bounds are clamped; constants and the counter of a loop are not, nor what is in bounds already.
func.func public @main(%x: tensor<8x4xf32>, %i: tensor<i32>, %j: tensor<1x1xi32>) -> (tensor<8xf32>, tensor<2x4xf32>, tensor<8x4xf32>, tensor<1x4xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %seven = stablehlo.constant dense<7> : tensor<i32>
  %eight = stablehlo.constant dense<8> : tensor<i32>
  %acc = stablehlo.constant dense<0.0> : tensor<8xf32>
  %0:2 = stablehlo.while(%n = %zero, %a = %acc) : tensor<i32>, tensor<8xf32>
  cond {
    %c = stablehlo.compare LT, %n, %eight : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %below = stablehlo.compare LT, %n, %zero : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %raised = stablehlo.add %n, %eight : tensor<i32>
    %at = stablehlo.select %below, %raised, %n : tensor<i1>, tensor<i32>
    %back = stablehlo.subtract %seven, %at : tensor<i32>
    %r = stablehlo.dynamic_slice %x, %back, %zero, sizes = [1, 1] : (tensor<8x4xf32>, tensor<i32>, tensor<i32>) -> tensor<1x1xf32>
    %s = stablehlo.reshape %r : (tensor<1x1xf32>) -> tensor<1xf32>
    %u = stablehlo.dynamic_update_slice %a, %s, %at : (tensor<8xf32>, tensor<1xf32>, tensor<i32>) -> tensor<8xf32>
    %m = stablehlo.add %n, %one : tensor<i32>
    stablehlo.return %m, %u : tensor<i32>, tensor<8xf32>
  }
  %1 = stablehlo.dynamic_slice %x, %i, %i, sizes = [2, 4] : (tensor<8x4xf32>, tensor<i32>, tensor<i32>) -> tensor<2x4xf32>
  %2 = stablehlo.dynamic_update_slice %x, %1, %i, %zero : (tensor<8x4xf32>, tensor<2x4xf32>, tensor<i32>, tensor<i32>) -> tensor<8x4xf32>
  %3 = "stablehlo.gather"(%x, %j) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 1, 4>}> : (tensor<8x4xf32>, tensor<1x1xi32>) -> tensor<1x4xf32>
  return %0#1, %1, %2, %3 : tensor<8xf32>, tensor<2x4xf32>, tensor<8x4xf32>, tensor<1x4xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<8x4xf32>, %arg1: tensor<i32>, %arg2: tensor<1x1xi32>) -> (tensor<8xf32>, tensor<2x4xf32>, tensor<8x4xf32>, tensor<1x4xf32>) {
    %c = stablehlo.constant dense<0> : tensor<1x1xi32>
    %c_0 = stablehlo.constant dense<7> : tensor<1x1xi32>
    %c_1 = stablehlo.constant dense<6> : tensor<i32>
    %c_2 = stablehlo.constant dense<0> : tensor<i32>
    %c_3 = stablehlo.constant dense<1> : tensor<i32>
    %c_4 = stablehlo.constant dense<7> : tensor<i32>
    %c_5 = stablehlo.constant dense<8> : tensor<i32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<8xf32>
    %0:2 = stablehlo.while(%iterArg = %c_2, %iterArg_6 = %cst) : tensor<i32>, tensor<8xf32>
    cond {
      %6 = stablehlo.compare LT, %iterArg, %c_5 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %6 : tensor<i1>
    } do {
      %6 = stablehlo.compare LT, %iterArg, %c_2 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      %7 = stablehlo.add %iterArg, %c_5 : tensor<i32>
      %8 = stablehlo.select %6, %7, %iterArg : tensor<i1>, tensor<i32>
      %9 = stablehlo.subtract %c_4, %8 : tensor<i32>
      %10 = stablehlo.dynamic_slice %arg0, %9, %c_2, sizes = [1, 1] : (tensor<8x4xf32>, tensor<i32>, tensor<i32>) -> tensor<1x1xf32>
      %11 = stablehlo.reshape %10 : (tensor<1x1xf32>) -> tensor<1xf32>
      %12 = stablehlo.dynamic_update_slice %iterArg_6, %11, %8 : (tensor<8xf32>, tensor<1xf32>, tensor<i32>) -> tensor<8xf32>
      %13 = stablehlo.add %iterArg, %c_3 : tensor<i32>
      stablehlo.return %13, %12 : tensor<i32>, tensor<8xf32>
    }
    %1 = stablehlo.clamp %c_2, %arg1, %c_1 : tensor<i32>
    %2 = stablehlo.dynamic_slice %arg0, %1, %c_2, sizes = [2, 4] : (tensor<8x4xf32>, tensor<i32>, tensor<i32>) -> tensor<2x4xf32>
    %3 = stablehlo.dynamic_update_slice %arg0, %2, %1, %c_2 : (tensor<8x4xf32>, tensor<2x4xf32>, tensor<i32>, tensor<i32>) -> tensor<8x4xf32>
    %4 = stablehlo.clamp %c, %arg2, %c_0 : tensor<1x1xi32>
    %5 = "stablehlo.gather"(%arg0, %4) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 1, 4>}> : (tensor<8x4xf32>, tensor<1x1xi32>) -> tensor<1x4xf32>
    return %0#1, %2, %3, %5 : tensor<8xf32>, tensor<2x4xf32>, tensor<8x4xf32>, tensor<1x4xf32>
  }
}
