// split add along 0 by 2
// A moment in the host's memory, updated by one expression: slices of it are copied to the device and back.
func.func public @main(%m: tensor<6x4xf32> {mhlo.memory_kind = "pinned_host", tf.aliasing_output = 0 : i32}, %g: tensor<6x4xf32>) -> (tensor<6x4xf32> {mhlo.memory_kind = "pinned_host"}) {
  %sum = stablehlo.add %m, %g : tensor<6x4xf32>
  %y = stablehlo.tanh %sum : tensor<6x4xf32>
  return %y : tensor<6x4xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<6x4xf32> {mhlo.memory_kind = "pinned_host", tf.aliasing_output = 0 : i32}, %arg1: tensor<6x4xf32>) -> (tensor<6x4xf32> {mhlo.memory_kind = "pinned_host"}) {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<6x4xf32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0:2 = stablehlo.while(%iterArg = %c, %iterArg_0 = %cst) : tensor<i32>, tensor<6x4xf32>
    cond {
      %c_1 = stablehlo.constant dense<3> : tensor<i32>
      %1 = stablehlo.compare LT, %iterArg, %c_1 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %1 : tensor<i1>
    } do {
      %c_1 = stablehlo.constant dense<2> : tensor<i32>
      %1 = stablehlo.multiply %iterArg, %c_1 : tensor<i32>
      %c_2 = stablehlo.constant dense<0> : tensor<i32>
      %2 = stablehlo.dynamic_slice %arg0, %1, %c_2, sizes = [2, 4] : (tensor<6x4xf32>, tensor<i32>, tensor<i32>) -> tensor<2x4xf32>
      %3 = stablehlo.custom_call @annotate_device_placement(%2) {backend_config = "", has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "device"}} : (tensor<2x4xf32>) -> tensor<2x4xf32>
      %c_3 = stablehlo.constant dense<0> : tensor<i32>
      %4 = stablehlo.dynamic_slice %arg1, %1, %c_3, sizes = [2, 4] : (tensor<6x4xf32>, tensor<i32>, tensor<i32>) -> tensor<2x4xf32>
      %5 = stablehlo.add %3, %4 : tensor<2x4xf32>
      %6 = stablehlo.tanh %5 : tensor<2x4xf32>
      %7 = stablehlo.custom_call @annotate_device_placement(%6) {backend_config = "", has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "pinned_host"}} : (tensor<2x4xf32>) -> tensor<2x4xf32>
      %c_4 = stablehlo.constant dense<0> : tensor<i32>
      %8 = stablehlo.dynamic_update_slice %iterArg_0, %7, %1, %c_4 : (tensor<6x4xf32>, tensor<2x4xf32>, tensor<i32>, tensor<i32>) -> tensor<6x4xf32>
      %c_5 = stablehlo.constant dense<1> : tensor<i32>
      %9 = stablehlo.add %iterArg, %c_5 : tensor<i32>
      stablehlo.return %9, %8 : tensor<i32>, tensor<6x4xf32>
    }
    return %0#1 : tensor<6x4xf32>
  }
}
