// stream-arguments
// Two moments in the host's memory that are read first and written last: each is copied and updated two rows at a time.
func.func public @main(%a: tensor<4x8xf32> {mhlo.memory_kind = "pinned_host"}, %b: tensor<4x8xf32> {mhlo.memory_kind = "pinned_host"}, %g: tensor<4x8xf32>) -> (tensor<4x8xf32> {mhlo.memory_kind = "pinned_host"}, tensor<4x8xf32> {mhlo.memory_kind = "pinned_host"}) {
  %0 = stablehlo.add %a, %g : tensor<4x8xf32>
  %1 = stablehlo.subtract %b, %g : tensor<4x8xf32>
  %2 = stablehlo.tanh %0 : tensor<4x8xf32>
  %3 = stablehlo.tanh %1 : tensor<4x8xf32>
  return %2, %3 : tensor<4x8xf32>, tensor<4x8xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<4x8xf32> {mhlo.memory_kind = "pinned_host"}, %arg1: tensor<4x8xf32> {mhlo.memory_kind = "pinned_host"}, %arg2: tensor<4x8xf32>) -> (tensor<4x8xf32> {mhlo.memory_kind = "pinned_host"}, tensor<4x8xf32> {mhlo.memory_kind = "pinned_host"}) {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<4x8xf32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0:2 = stablehlo.while(%iterArg = %c, %iterArg_2 = %cst) : tensor<i32>, tensor<4x8xf32>
    cond {
      %c_3 = stablehlo.constant dense<2> : tensor<i32>
      %2 = stablehlo.compare LT, %iterArg, %c_3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %2 : tensor<i1>
    } do {
      %c_3 = stablehlo.constant dense<2> : tensor<i32>
      %2 = stablehlo.multiply %iterArg, %c_3 : tensor<i32>
      %c_4 = stablehlo.constant dense<0> : tensor<i32>
      %3 = stablehlo.dynamic_slice %arg0, %2, %c_4, sizes = [2, 8] : (tensor<4x8xf32>, tensor<i32>, tensor<i32>) -> tensor<2x8xf32>
      %4 = stablehlo.custom_call @annotate_device_placement(%3) {backend_config = "", has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "device"}} : (tensor<2x8xf32>) -> tensor<2x8xf32>
      %c_5 = stablehlo.constant dense<0> : tensor<i32>
      %5 = stablehlo.dynamic_slice %arg2, %2, %c_5, sizes = [2, 8] : (tensor<4x8xf32>, tensor<i32>, tensor<i32>) -> tensor<2x8xf32>
      %6 = stablehlo.add %4, %5 : tensor<2x8xf32>
      %7 = stablehlo.tanh %6 : tensor<2x8xf32>
      %8 = stablehlo.custom_call @annotate_device_placement(%7) {backend_config = "", has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "pinned_host"}} : (tensor<2x8xf32>) -> tensor<2x8xf32>
      %c_6 = stablehlo.constant dense<0> : tensor<i32>
      %9 = stablehlo.dynamic_update_slice %iterArg_2, %8, %2, %c_6 : (tensor<4x8xf32>, tensor<2x8xf32>, tensor<i32>, tensor<i32>) -> tensor<4x8xf32>
      %c_7 = stablehlo.constant dense<1> : tensor<i32>
      %10 = stablehlo.add %iterArg, %c_7 : tensor<i32>
      stablehlo.return %10, %9 : tensor<i32>, tensor<4x8xf32>
    }
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<4x8xf32>
    %c_1 = stablehlo.constant dense<0> : tensor<i32>
    %1:2 = stablehlo.while(%iterArg = %c_1, %iterArg_2 = %cst_0) : tensor<i32>, tensor<4x8xf32>
    cond {
      %c_3 = stablehlo.constant dense<2> : tensor<i32>
      %2 = stablehlo.compare LT, %iterArg, %c_3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %2 : tensor<i1>
    } do {
      %c_3 = stablehlo.constant dense<2> : tensor<i32>
      %2 = stablehlo.multiply %iterArg, %c_3 : tensor<i32>
      %c_4 = stablehlo.constant dense<0> : tensor<i32>
      %3 = stablehlo.dynamic_slice %arg1, %2, %c_4, sizes = [2, 8] : (tensor<4x8xf32>, tensor<i32>, tensor<i32>) -> tensor<2x8xf32>
      %4 = stablehlo.custom_call @annotate_device_placement(%3) {backend_config = "", has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "device"}} : (tensor<2x8xf32>) -> tensor<2x8xf32>
      %c_5 = stablehlo.constant dense<0> : tensor<i32>
      %5 = stablehlo.dynamic_slice %arg2, %2, %c_5, sizes = [2, 8] : (tensor<4x8xf32>, tensor<i32>, tensor<i32>) -> tensor<2x8xf32>
      %6 = stablehlo.subtract %4, %5 : tensor<2x8xf32>
      %7 = stablehlo.tanh %6 : tensor<2x8xf32>
      %8 = stablehlo.custom_call @annotate_device_placement(%7) {backend_config = "", has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "pinned_host"}} : (tensor<2x8xf32>) -> tensor<2x8xf32>
      %c_6 = stablehlo.constant dense<0> : tensor<i32>
      %9 = stablehlo.dynamic_update_slice %iterArg_2, %8, %2, %c_6 : (tensor<4x8xf32>, tensor<2x8xf32>, tensor<i32>, tensor<i32>) -> tensor<4x8xf32>
      %c_7 = stablehlo.constant dense<1> : tensor<i32>
      %10 = stablehlo.add %iterArg, %c_7 : tensor<i32>
      stablehlo.return %10, %9 : tensor<i32>, tensor<4x8xf32>
    }
    return %0#1, %1#1 : tensor<4x8xf32>, tensor<4x8xf32>
  }
}
