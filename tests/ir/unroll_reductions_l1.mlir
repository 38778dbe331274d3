// rewrite unroll-reductions
// L1 distances: three columns, each read as a row of a transpose.
func.func public @main(%x: tensor<50x3xf32>, %y: tensor<60x3xf32>) -> tensor<50x60xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.broadcast_in_dim %x, dims = [0, 2] : (tensor<50x3xf32>) -> tensor<50x60x3xf32>
  %1 = stablehlo.broadcast_in_dim %y, dims = [1, 2] : (tensor<60x3xf32>) -> tensor<50x60x3xf32>
  %2 = stablehlo.subtract %0, %1 : tensor<50x60x3xf32>
  %3 = stablehlo.abs %2 : tensor<50x60x3xf32>
  %y0 = stablehlo.reduce(%3 init: %zero) applies stablehlo.add across dimensions = [2] : (tensor<50x60x3xf32>, tensor<f32>) -> tensor<50x60xf32>
  return %y0 : tensor<50x60xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<50x3xf32>, %arg1: tensor<60x3xf32>) -> tensor<50x60xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.transpose %arg0, dims = [1, 0] : (tensor<50x3xf32>) -> tensor<3x50xf32>
    %1 = stablehlo.transpose %arg1, dims = [1, 0] : (tensor<60x3xf32>) -> tensor<3x60xf32>
    %2 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<50x60xf32>
    %3 = stablehlo.slice %0 [0:1, 0:50] : (tensor<3x50xf32>) -> tensor<1x50xf32>
    %4 = stablehlo.reshape %3 : (tensor<1x50xf32>) -> tensor<50xf32>
    %5 = stablehlo.broadcast_in_dim %4, dims = [0] : (tensor<50xf32>) -> tensor<50x60xf32>
    %6 = stablehlo.slice %1 [0:1, 0:60] : (tensor<3x60xf32>) -> tensor<1x60xf32>
    %7 = stablehlo.reshape %6 : (tensor<1x60xf32>) -> tensor<60xf32>
    %8 = stablehlo.broadcast_in_dim %7, dims = [1] : (tensor<60xf32>) -> tensor<50x60xf32>
    %9 = stablehlo.subtract %5, %8 : tensor<50x60xf32>
    %10 = stablehlo.abs %9 : tensor<50x60xf32>
    %11 = stablehlo.slice %0 [1:2, 0:50] : (tensor<3x50xf32>) -> tensor<1x50xf32>
    %12 = stablehlo.reshape %11 : (tensor<1x50xf32>) -> tensor<50xf32>
    %13 = stablehlo.broadcast_in_dim %12, dims = [0] : (tensor<50xf32>) -> tensor<50x60xf32>
    %14 = stablehlo.slice %1 [1:2, 0:60] : (tensor<3x60xf32>) -> tensor<1x60xf32>
    %15 = stablehlo.reshape %14 : (tensor<1x60xf32>) -> tensor<60xf32>
    %16 = stablehlo.broadcast_in_dim %15, dims = [1] : (tensor<60xf32>) -> tensor<50x60xf32>
    %17 = stablehlo.subtract %13, %16 : tensor<50x60xf32>
    %18 = stablehlo.abs %17 : tensor<50x60xf32>
    %19 = stablehlo.add %10, %18 : tensor<50x60xf32>
    %20 = stablehlo.slice %0 [2:3, 0:50] : (tensor<3x50xf32>) -> tensor<1x50xf32>
    %21 = stablehlo.reshape %20 : (tensor<1x50xf32>) -> tensor<50xf32>
    %22 = stablehlo.broadcast_in_dim %21, dims = [0] : (tensor<50xf32>) -> tensor<50x60xf32>
    %23 = stablehlo.slice %1 [2:3, 0:60] : (tensor<3x60xf32>) -> tensor<1x60xf32>
    %24 = stablehlo.reshape %23 : (tensor<1x60xf32>) -> tensor<60xf32>
    %25 = stablehlo.broadcast_in_dim %24, dims = [1] : (tensor<60xf32>) -> tensor<50x60xf32>
    %26 = stablehlo.subtract %22, %25 : tensor<50x60xf32>
    %27 = stablehlo.abs %26 : tensor<50x60xf32>
    %28 = stablehlo.add %19, %27 : tensor<50x60xf32>
    %29 = stablehlo.add %2, %28 : tensor<50x60xf32>
    return %29 : tensor<50x60xf32>
  }
}
