// offload-to-host
// A loop over columns reads a column of all rows, and of that a row: a whole row is copied back, before the loop.
func.func public @main(%x: tensor<8x4xf32>, %g: tensor<8x4xf32>) -> (tensor<8x4xf32>, tensor<8x4xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %four = stablehlo.constant dense<4> : tensor<i32>
  %init = stablehlo.constant dense<0.0> : tensor<3x8x4xf32>
  %0:3 = stablehlo.while(%i = %zero, %h = %x, %t = %init) : tensor<i32>, tensor<8x4xf32>, tensor<3x8x4xf32>
  cond {
    %c = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %1 = stablehlo.tanh %h : tensor<8x4xf32>
    %2 = stablehlo.reshape %1 : (tensor<8x4xf32>) -> tensor<1x8x4xf32>
    %3 = stablehlo.dynamic_update_slice %t, %2, %i, %zero, %zero : (tensor<3x8x4xf32>, tensor<1x8x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<3x8x4xf32>
    %4 = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %4, %1, %3 : tensor<i32>, tensor<8x4xf32>, tensor<3x8x4xf32>
  }
  %5:2 = stablehlo.while(%i = %zero, %d = %g) : tensor<i32>, tensor<8x4xf32>
  cond {
    %c = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %6:2 = stablehlo.while(%j = %zero, %e = %d) : tensor<i32>, tensor<8x4xf32>
    cond {
      %c = stablehlo.compare LT, %j, %four : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    } do {
      %7 = stablehlo.dynamic_slice %0#2, %zero, %zero, %j, sizes = [3, 8, 1] : (tensor<3x8x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<3x8x1xf32>
      %8 = stablehlo.dynamic_slice %7, %i, %zero, %zero, sizes = [1, 8, 1] : (tensor<3x8x1xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x8x1xf32>
      %9 = stablehlo.reshape %8 : (tensor<1x8x1xf32>) -> tensor<8x1xf32>
      %10 = stablehlo.dynamic_update_slice %e, %9, %zero, %j : (tensor<8x4xf32>, tensor<8x1xf32>, tensor<i32>, tensor<i32>) -> tensor<8x4xf32>
      %11 = stablehlo.add %j, %one : tensor<i32>
      stablehlo.return %11, %10 : tensor<i32>, tensor<8x4xf32>
    }
    %12 = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %12, %6#1 : tensor<i32>, tensor<8x4xf32>
  }
  return %0#1, %5#1 : tensor<8x4xf32>, tensor<8x4xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<8x4xf32>, %arg1: tensor<8x4xf32>) -> (tensor<8x4xf32>, tensor<8x4xf32>) {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %c_0 = stablehlo.constant dense<1> : tensor<i32>
    %c_1 = stablehlo.constant dense<3> : tensor<i32>
    %c_2 = stablehlo.constant dense<4> : tensor<i32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<3x8x4xf32>
    %0:3 = stablehlo.while(%iterArg = %c, %iterArg_3 = %arg0, %iterArg_4 = %cst) : tensor<i32>, tensor<8x4xf32>, tensor<3x8x4xf32>
    cond {
      %2 = stablehlo.compare LT, %iterArg, %c_1 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %2 : tensor<i1>
    } do {
      %2 = stablehlo.tanh %iterArg_3 : tensor<8x4xf32>
      %3 = stablehlo.reshape %2 : (tensor<8x4xf32>) -> tensor<1x8x4xf32>
      %4 = stablehlo.custom_call @annotate_device_placement(%3) {backend_config = "", has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "pinned_host"}} : (tensor<1x8x4xf32>) -> tensor<1x8x4xf32>
      %5 = stablehlo.dynamic_update_slice %iterArg_4, %4, %iterArg, %c, %c : (tensor<3x8x4xf32>, tensor<1x8x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<3x8x4xf32>
      %6 = stablehlo.add %iterArg, %c_0 : tensor<i32>
      stablehlo.return %6, %2, %5 : tensor<i32>, tensor<8x4xf32>, tensor<3x8x4xf32>
    }
    %1:2 = stablehlo.while(%iterArg = %c, %iterArg_3 = %arg1) : tensor<i32>, tensor<8x4xf32>
    cond {
      %2 = stablehlo.compare LT, %iterArg, %c_1 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %2 : tensor<i1>
    } do {
      %2 = stablehlo.dynamic_slice %0#2, %iterArg, %c, %c, sizes = [1, 8, 4] : (tensor<3x8x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x8x4xf32>
      %3 = stablehlo.custom_call @annotate_device_placement(%2) {backend_config = "", has_side_effect = true, mhlo.frontend_attributes = {_xla_buffer_placement = "device"}} : (tensor<1x8x4xf32>) -> tensor<1x8x4xf32>
      %4:2 = stablehlo.while(%iterArg_4 = %c, %iterArg_5 = %iterArg_3) : tensor<i32>, tensor<8x4xf32>
      cond {
        %6 = stablehlo.compare LT, %iterArg_4, %c_2 : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %6 : tensor<i1>
      } do {
        %6 = stablehlo.dynamic_slice %3, %c, %c, %iterArg_4, sizes = [1, 8, 1] : (tensor<1x8x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x8x1xf32>
        %7 = stablehlo.reshape %6 : (tensor<1x8x1xf32>) -> tensor<8x1xf32>
        %8 = stablehlo.dynamic_update_slice %iterArg_5, %7, %c, %iterArg_4 : (tensor<8x4xf32>, tensor<8x1xf32>, tensor<i32>, tensor<i32>) -> tensor<8x4xf32>
        %9 = stablehlo.add %iterArg_4, %c_0 : tensor<i32>
        stablehlo.return %9, %8 : tensor<i32>, tensor<8x4xf32>
      }
      %5 = stablehlo.add %iterArg, %c_0 : tensor<i32>
      stablehlo.return %5, %4#1 : tensor<i32>, tensor<8x4xf32>
    }
    return %0#1, %1#1 : tensor<8x4xf32>, tensor<8x4xf32>
  }
}
