// stream-arguments, copied again
// A table in the host's memory is multiplied by, and updated: the update copies it once more, two rows at a time.
func.func public @main(%t: tensor<4x8xf32> {mhlo.memory_kind = "pinned_host"}, %m: tensor<4x8xf32> {mhlo.memory_kind = "pinned_host"}, %x: tensor<2x4xf32>, %g: tensor<4x8xf32>) -> (tensor<2x8xf32>, tensor<4x8xf32> {mhlo.memory_kind = "pinned_host"}, tensor<4x8xf32> {mhlo.memory_kind = "pinned_host"}) {
  %0 = stablehlo.dot_general %x, %t, contracting_dims = [1] x [0] : (tensor<2x4xf32>, tensor<4x8xf32>) -> tensor<2x8xf32>
  %1 = stablehlo.add %m, %g : tensor<4x8xf32>
  %2 = stablehlo.subtract %t, %1 : tensor<4x8xf32>
  return %0, %2, %1 : tensor<2x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<4x8xf32> {mhlo.memory_kind = "pinned_host"}, %arg1: tensor<4x8xf32> {mhlo.memory_kind = "pinned_host"}, %arg2: tensor<2x4xf32>, %arg3: tensor<4x8xf32>) -> (tensor<2x8xf32>, tensor<4x8xf32> {mhlo.memory_kind = "pinned_host"}, tensor<4x8xf32> {mhlo.memory_kind = "pinned_host"}) {
    %0 = stablehlo.custom_call @annotate_device_placement(%arg0) {backend_config = "", has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "device"}} : (tensor<4x8xf32>) -> tensor<4x8xf32>
    %1 = stablehlo.dot_general %arg2, %0, contracting_dims = [1] x [0] : (tensor<2x4xf32>, tensor<4x8xf32>) -> tensor<2x8xf32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<4x8xf32>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<4x8xf32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %2:3 = stablehlo.while(%iterArg = %c, %iterArg_1 = %cst, %iterArg_2 = %cst_0) : tensor<i32>, tensor<4x8xf32>, tensor<4x8xf32>
    cond {
      %c_3 = stablehlo.constant dense<2> : tensor<i32>
      %3 = stablehlo.compare LT, %iterArg, %c_3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %3 : tensor<i1>
    } do {
      %c_3 = stablehlo.constant dense<2> : tensor<i32>
      %3 = stablehlo.multiply %iterArg, %c_3 : tensor<i32>
      %c_4 = stablehlo.constant dense<0> : tensor<i32>
      %4 = stablehlo.dynamic_slice %arg1, %3, %c_4, sizes = [2, 8] : (tensor<4x8xf32>, tensor<i32>, tensor<i32>) -> tensor<2x8xf32>
      %5 = stablehlo.custom_call @annotate_device_placement(%4) {backend_config = "", has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "device"}} : (tensor<2x8xf32>) -> tensor<2x8xf32>
      %c_5 = stablehlo.constant dense<0> : tensor<i32>
      %6 = stablehlo.dynamic_slice %arg3, %3, %c_5, sizes = [2, 8] : (tensor<4x8xf32>, tensor<i32>, tensor<i32>) -> tensor<2x8xf32>
      %7 = stablehlo.add %5, %6 : tensor<2x8xf32>
      %c_6 = stablehlo.constant dense<0> : tensor<i32>
      %8 = stablehlo.dynamic_slice %arg0, %3, %c_6, sizes = [2, 8] : (tensor<4x8xf32>, tensor<i32>, tensor<i32>) -> tensor<2x8xf32>
      %9 = stablehlo.custom_call @annotate_device_placement(%8) {backend_config = "", has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "device"}} : (tensor<2x8xf32>) -> tensor<2x8xf32>
      %10 = stablehlo.subtract %9, %7 : tensor<2x8xf32>
      %11 = stablehlo.custom_call @annotate_device_placement(%10) {backend_config = "", has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "pinned_host"}} : (tensor<2x8xf32>) -> tensor<2x8xf32>
      %c_7 = stablehlo.constant dense<0> : tensor<i32>
      %12 = stablehlo.dynamic_update_slice %iterArg_1, %11, %3, %c_7 : (tensor<4x8xf32>, tensor<2x8xf32>, tensor<i32>, tensor<i32>) -> tensor<4x8xf32>
      %13 = stablehlo.custom_call @annotate_device_placement(%7) {backend_config = "", has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "pinned_host"}} : (tensor<2x8xf32>) -> tensor<2x8xf32>
      %c_8 = stablehlo.constant dense<0> : tensor<i32>
      %14 = stablehlo.dynamic_update_slice %iterArg_2, %13, %3, %c_8 : (tensor<4x8xf32>, tensor<2x8xf32>, tensor<i32>, tensor<i32>) -> tensor<4x8xf32>
      %c_9 = stablehlo.constant dense<1> : tensor<i32>
      %15 = stablehlo.add %iterArg, %c_9 : tensor<i32>
      stablehlo.return %15, %12, %14 : tensor<i32>, tensor<4x8xf32>, tensor<4x8xf32>
    }
    return %1, %2#1, %2#2 : tensor<2x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>
  }
}
