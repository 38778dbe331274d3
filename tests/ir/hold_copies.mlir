// hold-copies
func.func public @main(%x: tensor<16x16xf32>, %v: tensor<16x16xf32>) -> (tensor<16x16xf32>, tensor<16x16xf32>) {
  %a = stablehlo.dot_general %x, %v, contracting_dims = [1] x [0] : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  %b = stablehlo.dot_general %a, %v, contracting_dims = [1] x [0] : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  %h = stablehlo.custom_call @annotate_device_placement(%a) {has_side_effect = true, backend_config = "", mhlo.frontend_attributes = {_xla_buffer_placement = "pinned_host"}} : (tensor<16x16xf32>) -> tensor<16x16xf32>
  %c = stablehlo.dot_general %b, %v, contracting_dims = [1] x [0] : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  %d = stablehlo.custom_call @annotate_device_placement(%h) {has_side_effect = true, backend_config = "", mhlo.frontend_attributes = {_xla_buffer_placement = "device"}} : (tensor<16x16xf32>) -> tensor<16x16xf32>
  %e = stablehlo.dot_general %c, %v, contracting_dims = [1] x [0] : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  %g = stablehlo.dot_general %d, %e, contracting_dims = [0] x [0] : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  %f = stablehlo.dot_general %e, %v, contracting_dims = [1] x [0] : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  return %f, %g : tensor<16x16xf32>, tensor<16x16xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<16x16xf32>, %arg1: tensor<16x16xf32>) -> (tensor<16x16xf32>, tensor<16x16xf32>) {
    %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0] : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    %1 = stablehlo.dot_general %0, %arg1, contracting_dims = [1] x [0] : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    %2 = stablehlo.custom_call @annotate_device_placement(%0) {backend_config = "", has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "pinned_host"}} : (tensor<16x16xf32>) -> tensor<16x16xf32>
    %3:2 = stablehlo.optimization_barrier %2, %1 : tensor<16x16xf32>, tensor<16x16xf32>
    %4 = stablehlo.dot_general %3#1, %arg1, contracting_dims = [1] x [0] : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    %5:2 = stablehlo.optimization_barrier %3#0, %4 : tensor<16x16xf32>, tensor<16x16xf32>
    %6 = stablehlo.custom_call @annotate_device_placement(%5#0) {backend_config = "", has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "device"}} : (tensor<16x16xf32>) -> tensor<16x16xf32>
    %7 = stablehlo.dot_general %5#1, %arg1, contracting_dims = [1] x [0] : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    %8 = stablehlo.dot_general %6, %7, contracting_dims = [0] x [0] : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    %9:2 = stablehlo.optimization_barrier %8, %7 : tensor<16x16xf32>, tensor<16x16xf32>
    %10 = stablehlo.dot_general %9#1, %arg1, contracting_dims = [1] x [0] : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
    return %10, %8 : tensor<16x16xf32>, tensor<16x16xf32>
  }
}
