// canonicalize
// Two rows of bf16 lie together in a TPU's memory, and are copied from the host together: a single row is sliced on the device, a pair there and copied.
func.func public @main(%m: tensor<6x4xbf16> {mhlo.memory_kind = "pinned_host"}, %n: tensor<6x4xbf16> {mhlo.memory_kind = "pinned_host"}) -> (tensor<1x4xbf16>, tensor<2x4xbf16>) {
  %row = stablehlo.slice %m [3:4, 0:4] : (tensor<6x4xbf16>) -> tensor<1x4xbf16>
  %x = stablehlo.tanh %row : tensor<1x4xbf16>
  %pair = stablehlo.slice %n [2:4, 0:4] : (tensor<6x4xbf16>) -> tensor<2x4xbf16>
  %y = stablehlo.tanh %pair : tensor<2x4xbf16>
  return %x, %y : tensor<1x4xbf16>, tensor<2x4xbf16>
}

// -----
module {
  func.func public @main(%arg0: tensor<6x4xbf16> {mhlo.memory_kind = "pinned_host"}, %arg1: tensor<6x4xbf16> {mhlo.memory_kind = "pinned_host"}) -> (tensor<1x4xbf16>, tensor<2x4xbf16>) {
    %0 = stablehlo.custom_call @annotate_device_placement(%arg0) {backend_config = "", has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "device"}} : (tensor<6x4xbf16>) -> tensor<6x4xbf16>
    %1 = stablehlo.slice %0 [3:4, 0:4] : (tensor<6x4xbf16>) -> tensor<1x4xbf16>
    %2 = stablehlo.tanh %1 : tensor<1x4xbf16>
    %3 = stablehlo.slice %arg1 [2:4, 0:4] : (tensor<6x4xbf16>) -> tensor<2x4xbf16>
    %4 = stablehlo.custom_call @annotate_device_placement(%3) {backend_config = "", has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "device"}} : (tensor<2x4xbf16>) -> tensor<2x4xbf16>
    %5 = stablehlo.tanh %4 : tensor<2x4xbf16>
    return %2, %5 : tensor<1x4xbf16>, tensor<2x4xbf16>
  }
}
