// join-barriers
// Of each group, in each block, one; a repetition is a group of its own.
func.func public @main(%x: tensor<4xf32>, %y: tensor<8xf32>) -> (tensor<4xf32>, tensor<8xf32>, tensor<4xf32>, tensor<8xf32>) {
  %a = stablehlo.optimization_barrier {barrier_group = 0 : i64} %x : tensor<4xf32>
  %b = stablehlo.optimization_barrier {barrier_group = 0 : i64} %y : tensor<8xf32>
  %c = stablehlo.negate %a : tensor<4xf32>
  %d = stablehlo.optimization_barrier {barrier_group = 0 : i64} %c : tensor<4xf32>
  %e = stablehlo.optimization_barrier {barrier_group = 0 : i64} %b : tensor<8xf32>
  return %a, %b, %d, %e : tensor<4xf32>, tensor<8xf32>, tensor<4xf32>, tensor<8xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<4xf32>, %arg1: tensor<8xf32>) -> (tensor<4xf32>, tensor<8xf32>, tensor<4xf32>, tensor<8xf32>) {
    %0:2 = stablehlo.optimization_barrier %arg0, %arg1 : tensor<4xf32>, tensor<8xf32>
    %1 = stablehlo.negate %0#0 : tensor<4xf32>
    %2:2 = stablehlo.optimization_barrier %1, %0#1 : tensor<4xf32>, tensor<8xf32>
    return %0#0, %0#1, %2#0, %2#1 : tensor<4xf32>, tensor<8xf32>, tensor<4xf32>, tensor<8xf32>
  }
}
