// offload-to-host
// Three layers h + tanh(h w): a row of tanh is copied to the host after it is made, and back before it is used.
func.func public @main(%w: tensor<3x4x4xf32>, %x: tensor<8x4xf32>, %g: tensor<8x4xf32>) -> (tensor<8x4xf32>, tensor<8x4xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %init = stablehlo.constant dense<0.0> : tensor<3x8x4xf32>
  %0:4 = stablehlo.while(%i = %zero, %h = %x, %t = %init, %s = %init) : tensor<i32>, tensor<8x4xf32>, tensor<3x8x4xf32>, tensor<3x8x4xf32>
  cond {
    %c = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %1 = stablehlo.dynamic_slice %w, %i, %zero, %zero, sizes = [1, 4, 4] : (tensor<3x4x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x4xf32>
    %2 = stablehlo.reshape %1 : (tensor<1x4x4xf32>) -> tensor<4x4xf32>
    %3 = stablehlo.dot_general %h, %2, contracting_dims = [1] x [0] : (tensor<8x4xf32>, tensor<4x4xf32>) -> tensor<8x4xf32>
    %4 = stablehlo.tanh %3 : tensor<8x4xf32>
    %5 = stablehlo.add %h, %4 : tensor<8x4xf32>
    %6 = stablehlo.reshape %4 : (tensor<8x4xf32>) -> tensor<1x8x4xf32>
    %7 = stablehlo.dynamic_update_slice %t, %6, %i, %zero, %zero : (tensor<3x8x4xf32>, tensor<1x8x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<3x8x4xf32>
    %8 = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %8, %5, %7, %s : tensor<i32>, tensor<8x4xf32>, tensor<3x8x4xf32>, tensor<3x8x4xf32>
  }
  %9:3 = stablehlo.while(%i = %zero, %d = %g, %t = %0#2) : tensor<i32>, tensor<8x4xf32>, tensor<3x8x4xf32>
  cond {
    %c = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %10 = stablehlo.subtract %three, %i : tensor<i32>
    %11 = stablehlo.subtract %10, %one : tensor<i32>
    %12 = stablehlo.dynamic_slice %t, %11, %zero, %zero, sizes = [1, 8, 4] : (tensor<3x8x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x8x4xf32>
    %13 = stablehlo.reshape %12 : (tensor<1x8x4xf32>) -> tensor<8x4xf32>
    %14 = stablehlo.multiply %d, %13 : tensor<8x4xf32>
    %15 = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %15, %14, %t : tensor<i32>, tensor<8x4xf32>, tensor<3x8x4xf32>
  }
  return %0#1, %9#1 : tensor<8x4xf32>, tensor<8x4xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<3x4x4xf32>, %arg1: tensor<8x4xf32>, %arg2: tensor<8x4xf32>) -> (tensor<8x4xf32>, tensor<8x4xf32>) {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %c_0 = stablehlo.constant dense<1> : tensor<i32>
    %c_1 = stablehlo.constant dense<3> : tensor<i32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<3x8x4xf32>
    %0:4 = stablehlo.while(%iterArg = %c, %iterArg_2 = %arg1, %iterArg_3 = %cst, %iterArg_4 = %cst) : tensor<i32>, tensor<8x4xf32>, tensor<3x8x4xf32>, tensor<3x8x4xf32>
    cond {
      %2 = stablehlo.compare LT, %iterArg, %c_1 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %2 : tensor<i1>
    } do {
      %2 = stablehlo.dynamic_slice %arg0, %iterArg, %c, %c, sizes = [1, 4, 4] : (tensor<3x4x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x4xf32>
      %3 = stablehlo.reshape %2 : (tensor<1x4x4xf32>) -> tensor<4x4xf32>
      %4 = stablehlo.dot_general %iterArg_2, %3, contracting_dims = [1] x [0] : (tensor<8x4xf32>, tensor<4x4xf32>) -> tensor<8x4xf32>
      %5 = stablehlo.tanh %4 : tensor<8x4xf32>
      %6 = stablehlo.add %iterArg_2, %5 : tensor<8x4xf32>
      %7 = stablehlo.reshape %5 : (tensor<8x4xf32>) -> tensor<1x8x4xf32>
      %8 = stablehlo.custom_call @annotate_device_placement(%7) {backend_config = "", has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "pinned_host"}} : (tensor<1x8x4xf32>) -> tensor<1x8x4xf32>
      %9 = stablehlo.dynamic_update_slice %iterArg_3, %8, %iterArg, %c, %c : (tensor<3x8x4xf32>, tensor<1x8x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<3x8x4xf32>
      %10 = stablehlo.add %iterArg, %c_0 : tensor<i32>
      stablehlo.return %10, %6, %9, %iterArg_4 : tensor<i32>, tensor<8x4xf32>, tensor<3x8x4xf32>, tensor<3x8x4xf32>
    }
    %1:3 = stablehlo.while(%iterArg = %c, %iterArg_2 = %arg2, %iterArg_3 = %0#2) : tensor<i32>, tensor<8x4xf32>, tensor<3x8x4xf32>
    cond {
      %2 = stablehlo.compare LT, %iterArg, %c_1 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %2 : tensor<i1>
    } do {
      %2 = stablehlo.subtract %c_1, %iterArg : tensor<i32>
      %3 = stablehlo.subtract %2, %c_0 : tensor<i32>
      %4 = stablehlo.dynamic_slice %iterArg_3, %3, %c, %c, sizes = [1, 8, 4] : (tensor<3x8x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x8x4xf32>
      %5 = stablehlo.custom_call @annotate_device_placement(%4) {backend_config = "", has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "device"}} : (tensor<1x8x4xf32>) -> tensor<1x8x4xf32>
      %6 = stablehlo.reshape %5 : (tensor<1x8x4xf32>) -> tensor<8x4xf32>
      %7 = stablehlo.multiply %iterArg_2, %6 : tensor<8x4xf32>
      %8 = stablehlo.add %iterArg, %c_0 : tensor<i32>
      stablehlo.return %8, %7, %iterArg_3 : tensor<i32>, tensor<8x4xf32>, tensor<3x8x4xf32>
    }
    return %0#1, %1#1 : tensor<8x4xf32>, tensor<8x4xf32>
  }
}
