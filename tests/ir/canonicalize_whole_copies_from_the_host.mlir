// canonicalize
// The program copies all of %m and %w to the device, and reads rows of %m: rows are copied. The loop computes with all of %w and gets one copy before it. The sum is on the host already when it is copied there again.
func.func public @main(%m: tensor<6x4xf32> {mhlo.memory_kind = "pinned_host"}, %w: tensor<4x4xf32> {mhlo.memory_kind = "pinned_host"}, %x: tensor<1x4xf32>) -> (tensor<1x4xf32>, tensor<6x4xf32> {mhlo.memory_kind = "pinned_host"}) {
  %c = stablehlo.custom_call @annotate_device_placement(%m) {backend_config = "", has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "device"}} : (tensor<6x4xf32>) -> tensor<6x4xf32>
  %d = stablehlo.custom_call @annotate_device_placement(%w) {backend_config = "", has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "device"}} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %six = stablehlo.constant dense<6> : tensor<i32>
  %r:4 = stablehlo.while(%i = %zero, %y = %x, %rows = %c, %all = %d) : tensor<i32>, tensor<1x4xf32>, tensor<6x4xf32>, tensor<4x4xf32>
  cond {
    %more = stablehlo.compare LT, %i, %six, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %row = stablehlo.dynamic_slice %rows, %i, %zero, sizes = [1, 4] : (tensor<6x4xf32>, tensor<i32>, tensor<i32>) -> tensor<1x4xf32>
    %z = stablehlo.dot_general %y, %all, contracting_dims = [1] x [0] : (tensor<1x4xf32>, tensor<4x4xf32>) -> tensor<1x4xf32>
    %new = stablehlo.add %z, %row : tensor<1x4xf32>
    %next = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %next, %new, %rows, %all : tensor<i32>, tensor<1x4xf32>, tensor<6x4xf32>, tensor<4x4xf32>
  }
  %sum = stablehlo.add %c, %c : tensor<6x4xf32>
  %h = stablehlo.custom_call @annotate_device_placement(%sum) {backend_config = "", has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "pinned_host"}} : (tensor<6x4xf32>) -> tensor<6x4xf32>
  %again = stablehlo.custom_call @annotate_device_placement(%h) {backend_config = "", has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "pinned_host"}} : (tensor<6x4xf32>) -> tensor<6x4xf32>
  return %r#1, %again : tensor<1x4xf32>, tensor<6x4xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<6x4xf32> {mhlo.memory_kind = "pinned_host"}, %arg1: tensor<4x4xf32> {mhlo.memory_kind = "pinned_host"}, %arg2: tensor<1x4xf32>) -> (tensor<1x4xf32>, tensor<6x4xf32> {mhlo.memory_kind = "pinned_host"}) {
    %c = stablehlo.constant dense<6> : tensor<i32>
    %c_0 = stablehlo.constant dense<1> : tensor<i32>
    %c_1 = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.custom_call @annotate_device_placement(%arg1) {backend_config = "", has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "device"}} : (tensor<4x4xf32>) -> tensor<4x4xf32>
    %1:4 = stablehlo.while(%iterArg = %c_1, %iterArg_2 = %arg2, %iterArg_3 = %arg0, %iterArg_4 = %0) : tensor<i32>, tensor<1x4xf32>, tensor<6x4xf32>, tensor<4x4xf32>
    cond {
      %5 = stablehlo.compare LT, %iterArg, %c, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %5 : tensor<i1>
    } do {
      %5 = stablehlo.dynamic_slice %iterArg_3, %iterArg, %c_1, sizes = [1, 4] : (tensor<6x4xf32>, tensor<i32>, tensor<i32>) -> tensor<1x4xf32>
      %6 = stablehlo.dot_general %iterArg_2, %iterArg_4, contracting_dims = [1] x [0] : (tensor<1x4xf32>, tensor<4x4xf32>) -> tensor<1x4xf32>
      %7 = stablehlo.custom_call @annotate_device_placement(%5) {backend_config = "", has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "device"}} : (tensor<1x4xf32>) -> tensor<1x4xf32>
      %8 = stablehlo.add %6, %7 : tensor<1x4xf32>
      %9 = stablehlo.add %iterArg, %c_0 : tensor<i32>
      stablehlo.return %9, %8, %iterArg_3, %iterArg_4 : tensor<i32>, tensor<1x4xf32>, tensor<6x4xf32>, tensor<4x4xf32>
    }
    %2 = stablehlo.custom_call @annotate_device_placement(%arg0) {backend_config = "", has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "device"}} : (tensor<6x4xf32>) -> tensor<6x4xf32>
    %3 = stablehlo.add %2, %2 : tensor<6x4xf32>
    %4 = stablehlo.custom_call @annotate_device_placement(%3) {backend_config = "", has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "pinned_host"}} : (tensor<6x4xf32>) -> tensor<6x4xf32>
    return %1#1, %4 : tensor<1x4xf32>, tensor<6x4xf32>
  }
}
