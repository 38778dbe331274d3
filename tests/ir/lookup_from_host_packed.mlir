// lookup-from-host
// Two by three rows of a table in the host's memory: of bf16 each is copied with the row it lies together with.
func.func public @main(%table: tensor<8x4xbf16> {mhlo.memory_kind = "pinned_host"}, %ids: tensor<2x3x1xi32>) -> tensor<2x3x4xbf16> {
  %rows = "stablehlo.gather"(%table, %ids) <{dimension_numbers = #stablehlo.gather<offset_dims = [2], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 2>, indices_are_sorted = false, slice_sizes = array<i64: 1, 4>}> : (tensor<8x4xbf16>, tensor<2x3x1xi32>) -> tensor<2x3x4xbf16>
  %y = stablehlo.tanh %rows : tensor<2x3x4xbf16>
  return %y : tensor<2x3x4xbf16>
}

// -----
module {
  func.func public @main(%arg0: tensor<8x4xbf16> {mhlo.memory_kind = "pinned_host"}, %arg1: tensor<2x3x1xi32>) -> tensor<2x3x4xbf16> {
    %c = stablehlo.constant dense<1> : tensor<i32>
    %c_0 = stablehlo.constant dense<2> : tensor<i32>
    %c_1 = stablehlo.constant dense<6> : tensor<i32>
    %c_2 = stablehlo.constant dense<0> : tensor<i32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<bf16>
    %c_3 = stablehlo.constant dense<0> : tensor<6xi32>
    %c_4 = stablehlo.constant dense<7> : tensor<6xi32>
    %0 = stablehlo.reshape %arg1 : (tensor<2x3x1xi32>) -> tensor<6xi32>
    %1 = stablehlo.clamp %c_3, %0, %c_4 : tensor<6xi32>
    %2 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<bf16>) -> tensor<6x4xbf16>
    %3:2 = stablehlo.while(%iterArg = %c_2, %iterArg_5 = %2) : tensor<i32>, tensor<6x4xbf16>
    cond {
      %6 = stablehlo.compare LT, %iterArg, %c_1 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %6 : tensor<i1>
    } do {
      %6 = stablehlo.dynamic_slice %1, %iterArg, sizes = [1] : (tensor<6xi32>, tensor<i32>) -> tensor<1xi32>
      %7 = stablehlo.reshape %6 : (tensor<1xi32>) -> tensor<i32>
      %8 = stablehlo.remainder %7, %c_0 : tensor<i32>
      %9 = stablehlo.subtract %7, %8 : tensor<i32>
      %10 = stablehlo.dynamic_slice %arg0, %9, %c_2, sizes = [2, 4] : (tensor<8x4xbf16>, tensor<i32>, tensor<i32>) -> tensor<2x4xbf16>
      %11 = stablehlo.custom_call @annotate_device_placement(%10) {backend_config = "", has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "device"}} : (tensor<2x4xbf16>) -> tensor<2x4xbf16>
      %12 = stablehlo.dynamic_slice %11, %8, %c_2, sizes = [1, 4] : (tensor<2x4xbf16>, tensor<i32>, tensor<i32>) -> tensor<1x4xbf16>
      %13 = stablehlo.dynamic_update_slice %iterArg_5, %12, %iterArg, %c_2 : (tensor<6x4xbf16>, tensor<1x4xbf16>, tensor<i32>, tensor<i32>) -> tensor<6x4xbf16>
      %14 = stablehlo.add %iterArg, %c : tensor<i32>
      stablehlo.return %14, %13 : tensor<i32>, tensor<6x4xbf16>
    }
    %4 = stablehlo.reshape %3#1 : (tensor<6x4xbf16>) -> tensor<2x3x4xbf16>
    %5 = stablehlo.tanh %4 : tensor<2x3x4xbf16>
    return %5 : tensor<2x3x4xbf16>
  }
}
