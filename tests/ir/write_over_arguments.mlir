// write-over-arguments
func.func @main(%p: tensor<4x8xf32> {tf.aliasing_output = 0 : i32}, %g: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %last = stablehlo.constant dense<3> : tensor<i32>
  %steps = stablehlo.constant dense<4> : tensor<i32>
  %zeros = stablehlo.constant dense<0.0> : tensor<4x8xf32>
  %r:3 = stablehlo.while(%i = %zero, %old = %p, %new = %zeros) : tensor<i32>, tensor<4x8xf32>, tensor<4x8xf32>
  cond {
    %more = stablehlo.compare LT, %i, %steps : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %row = stablehlo.subtract %last, %i : tensor<i32>
    %a = stablehlo.dynamic_slice %old, %row, %zero, sizes = [1, 8] : (tensor<4x8xf32>, tensor<i32>, tensor<i32>) -> tensor<1x8xf32>
    %b = stablehlo.dynamic_slice %g, %row, %zero, sizes = [1, 8] : (tensor<4x8xf32>, tensor<i32>, tensor<i32>) -> tensor<1x8xf32>
    %c = stablehlo.subtract %a, %b : tensor<1x8xf32>
    %written = stablehlo.dynamic_update_slice %new, %c, %row, %zero : (tensor<4x8xf32>, tensor<1x8xf32>, tensor<i32>, tensor<i32>) -> tensor<4x8xf32>
    %next = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %next, %old, %written : tensor<i32>, tensor<4x8xf32>, tensor<4x8xf32>
  }
  return %r#2 : tensor<4x8xf32>
}

// -----
module {
  func.func @main(%arg0: tensor<4x8xf32> {tf.aliasing_output = 0 : i32}, %arg1: tensor<4x8xf32>) -> tensor<4x8xf32> {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %c_0 = stablehlo.constant dense<1> : tensor<i32>
    %c_1 = stablehlo.constant dense<3> : tensor<i32>
    %c_2 = stablehlo.constant dense<4> : tensor<i32>
    %0:2 = stablehlo.while(%iterArg = %c, %iterArg_3 = %arg0) : tensor<i32>, tensor<4x8xf32>
    cond {
      %1 = stablehlo.compare LT, %iterArg, %c_2 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %1 : tensor<i1>
    } do {
      %1 = stablehlo.subtract %c_1, %iterArg : tensor<i32>
      %2 = stablehlo.dynamic_slice %iterArg_3, %1, %c, sizes = [1, 8] : (tensor<4x8xf32>, tensor<i32>, tensor<i32>) -> tensor<1x8xf32>
      %3 = stablehlo.dynamic_slice %arg1, %1, %c, sizes = [1, 8] : (tensor<4x8xf32>, tensor<i32>, tensor<i32>) -> tensor<1x8xf32>
      %4 = stablehlo.subtract %2, %3 : tensor<1x8xf32>
      %5 = stablehlo.dynamic_update_slice %iterArg_3, %4, %1, %c : (tensor<4x8xf32>, tensor<1x8xf32>, tensor<i32>, tensor<i32>) -> tensor<4x8xf32>
      %6 = stablehlo.add %iterArg, %c_0 : tensor<i32>
      stablehlo.return %6, %5 : tensor<i32>, tensor<4x8xf32>
    }
    return %0#1 : tensor<4x8xf32>
  }
}
