// rewrite keep-dots-apart
// The first sum stays; barriers tell the operands of the others from it and from each other.
module @sums {
  func.func public @main(%x: tensor<64x16xf32>, %u: tensor<64x24xf32>, %v: tensor<64x24xf32>, %w: tensor<64x24xf32>, %a: tensor<24x16xf32>, %b: tensor<24x16xf32>, %c: tensor<24x16xf32>) -> (tensor<24x16xf32>, tensor<24x16xf32>, tensor<24x16xf32>) {
    %0 = stablehlo.dot_general %u, %x, contracting_dims = [0] x [0] : (tensor<64x24xf32>, tensor<64x16xf32>) -> tensor<24x16xf32>
    %1 = stablehlo.add %a, %0 : tensor<24x16xf32>
    %2 = stablehlo.dot_general %v, %x, contracting_dims = [0] x [0] : (tensor<64x24xf32>, tensor<64x16xf32>) -> tensor<24x16xf32>
    %3 = stablehlo.add %b, %2 : tensor<24x16xf32>
    %4 = stablehlo.dot_general %w, %x, contracting_dims = [0] x [0] : (tensor<64x24xf32>, tensor<64x16xf32>) -> tensor<24x16xf32>
    %5 = stablehlo.add %4, %c : tensor<24x16xf32>
    return %1, %3, %5 : tensor<24x16xf32>, tensor<24x16xf32>, tensor<24x16xf32>
  }
}

// -----
module @sums {
  func.func public @main(%arg0: tensor<64x16xf32>, %arg1: tensor<64x24xf32>, %arg2: tensor<64x24xf32>, %arg3: tensor<64x24xf32>, %arg4: tensor<24x16xf32>, %arg5: tensor<24x16xf32>, %arg6: tensor<24x16xf32>) -> (tensor<24x16xf32>, tensor<24x16xf32>, tensor<24x16xf32>) {
    %0 = stablehlo.dot_general %arg1, %arg0, contracting_dims = [0] x [0] : (tensor<64x24xf32>, tensor<64x16xf32>) -> tensor<24x16xf32>
    %1 = stablehlo.add %arg4, %0 : tensor<24x16xf32>
    %2 = stablehlo.optimization_barrier %arg0 : tensor<64x16xf32>
    %3 = stablehlo.dot_general %arg2, %2, contracting_dims = [0] x [0] : (tensor<64x24xf32>, tensor<64x16xf32>) -> tensor<24x16xf32>
    %4 = stablehlo.add %arg5, %3 : tensor<24x16xf32>
    %5 = stablehlo.optimization_barrier %2 : tensor<64x16xf32>
    %6 = stablehlo.dot_general %arg3, %5, contracting_dims = [0] x [0] : (tensor<64x24xf32>, tensor<64x16xf32>) -> tensor<24x16xf32>
    %7 = stablehlo.add %6, %arg6 : tensor<24x16xf32>
    return %1, %4, %7 : tensor<24x16xf32>, tensor<24x16xf32>, tensor<24x16xf32>
  }
}
