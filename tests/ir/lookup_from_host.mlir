// lookup-from-host
// Two by three rows of a table in the host's memory: the table is not copied, each row is.
func.func public @main(%table: tensor<8x4xf32> {mhlo.memory_kind = "pinned_host"}, %ids: tensor<2x3x1xi32>) -> tensor<2x3x4xf32> {
  %rows = "stablehlo.gather"(%table, %ids) <{dimension_numbers = #stablehlo.gather<offset_dims = [2], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 2>, indices_are_sorted = false, slice_sizes = array<i64: 1, 4>}> : (tensor<8x4xf32>, tensor<2x3x1xi32>) -> tensor<2x3x4xf32>
  %y = stablehlo.tanh %rows : tensor<2x3x4xf32>
  return %y : tensor<2x3x4xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<8x4xf32> {mhlo.memory_kind = "pinned_host"}, %arg1: tensor<2x3x1xi32>) -> tensor<2x3x4xf32> {
    %c = stablehlo.constant dense<1> : tensor<i32>
    %c_0 = stablehlo.constant dense<6> : tensor<i32>
    %c_1 = stablehlo.constant dense<0> : tensor<i32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %c_2 = stablehlo.constant dense<0> : tensor<6xi32>
    %c_3 = stablehlo.constant dense<7> : tensor<6xi32>
    %0 = stablehlo.reshape %arg1 : (tensor<2x3x1xi32>) -> tensor<6xi32>
    %1 = stablehlo.clamp %c_2, %0, %c_3 : tensor<6xi32>
    %2 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<6x4xf32>
    %3:2 = stablehlo.while(%iterArg = %c_1, %iterArg_4 = %2) : tensor<i32>, tensor<6x4xf32>
    cond {
      %6 = stablehlo.compare LT, %iterArg, %c_0 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %6 : tensor<i1>
    } do {
      %6 = stablehlo.dynamic_slice %1, %iterArg, sizes = [1] : (tensor<6xi32>, tensor<i32>) -> tensor<1xi32>
      %7 = stablehlo.reshape %6 : (tensor<1xi32>) -> tensor<i32>
      %8 = stablehlo.dynamic_slice %arg0, %7, %c_1, sizes = [1, 4] : (tensor<8x4xf32>, tensor<i32>, tensor<i32>) -> tensor<1x4xf32>
      %9 = stablehlo.custom_call @annotate_device_placement(%8) {backend_config = "", has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "device"}} : (tensor<1x4xf32>) -> tensor<1x4xf32>
      %10 = stablehlo.dynamic_update_slice %iterArg_4, %9, %iterArg, %c_1 : (tensor<6x4xf32>, tensor<1x4xf32>, tensor<i32>, tensor<i32>) -> tensor<6x4xf32>
      %11 = stablehlo.add %iterArg, %c : tensor<i32>
      stablehlo.return %11, %10 : tensor<i32>, tensor<6x4xf32>
    }
    %4 = stablehlo.reshape %3#1 : (tensor<6x4xf32>) -> tensor<2x3x4xf32>
    %5 = stablehlo.tanh %4 : tensor<2x3x4xf32>
    return %5 : tensor<2x3x4xf32>
  }
}
