// canonicalize
// An argument and a result in the host's memory: what is computed with is copied, slices are copied as slices.
func.func public @main(%m: tensor<6x4xf32> {mhlo.memory_kind = "pinned_host"}, %g: tensor<6x4xf32>, %i: tensor<i32>) -> (tensor<6x4xf32> {mhlo.memory_kind = "pinned_host"}, tensor<1x4xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %sum = stablehlo.add %m, %g : tensor<6x4xf32>
  %row = stablehlo.dynamic_slice %m, %zero, %zero, sizes = [1, 4] : (tensor<6x4xf32>, tensor<i32>, tensor<i32>) -> tensor<1x4xf32>
  %y = stablehlo.tanh %row : tensor<1x4xf32>
  return %sum, %y : tensor<6x4xf32>, tensor<1x4xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<6x4xf32> {mhlo.memory_kind = "pinned_host"}, %arg1: tensor<6x4xf32>, %arg2: tensor<i32>) -> (tensor<6x4xf32> {mhlo.memory_kind = "pinned_host"}, tensor<1x4xf32>) {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.custom_call @annotate_device_placement(%arg0) {backend_config = "", has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "device"}} : (tensor<6x4xf32>) -> tensor<6x4xf32>
    %1 = stablehlo.add %0, %arg1 : tensor<6x4xf32>
    %2 = stablehlo.dynamic_slice %arg0, %c, %c, sizes = [1, 4] : (tensor<6x4xf32>, tensor<i32>, tensor<i32>) -> tensor<1x4xf32>
    %3 = stablehlo.custom_call @annotate_device_placement(%2) {backend_config = "", has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "device"}} : (tensor<1x4xf32>) -> tensor<1x4xf32>
    %4 = stablehlo.tanh %3 : tensor<1x4xf32>
    %5 = stablehlo.custom_call @annotate_device_placement(%1) {backend_config = "", has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "pinned_host"}} : (tensor<6x4xf32>) -> tensor<6x4xf32>
    return %5, %4 : tensor<6x4xf32>, tensor<1x4xf32>
  }
}
