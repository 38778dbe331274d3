// rewrite unroll-reductions
// Narrow floats add up in f32; the first dimension is not transposed.
func.func public @main(%x: tensor<2x50xbf16>, %y: tensor<60xbf16>) -> tensor<50x60xbf16> {
  %zero = stablehlo.constant dense<0.0> : tensor<bf16>
  %0 = stablehlo.broadcast_in_dim %x, dims = [0, 1] : (tensor<2x50xbf16>) -> tensor<2x50x60xbf16>
  %1 = stablehlo.broadcast_in_dim %y, dims = [2] : (tensor<60xbf16>) -> tensor<2x50x60xbf16>
  %2 = stablehlo.maximum %0, %1 : tensor<2x50x60xbf16>
  %z = stablehlo.reduce(%2 init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<2x50x60xbf16>, tensor<bf16>) -> tensor<50x60xbf16>
  return %z : tensor<50x60xbf16>
}

// -----
module {
  func.func public @main(%arg0: tensor<2x50xbf16>, %arg1: tensor<60xbf16>) -> tensor<50x60xbf16> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<bf16>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<bf16>) -> tensor<50x60xbf16>
    %1 = stablehlo.convert %0 : (tensor<50x60xbf16>) -> tensor<50x60xf32>
    %2 = stablehlo.slice %arg0 [0:1, 0:50] : (tensor<2x50xbf16>) -> tensor<1x50xbf16>
    %3 = stablehlo.reshape %2 : (tensor<1x50xbf16>) -> tensor<50xbf16>
    %4 = stablehlo.broadcast_in_dim %3, dims = [0] : (tensor<50xbf16>) -> tensor<50x60xbf16>
    %5 = stablehlo.broadcast_in_dim %arg1, dims = [1] : (tensor<60xbf16>) -> tensor<50x60xbf16>
    %6 = stablehlo.maximum %4, %5 : tensor<50x60xbf16>
    %7 = stablehlo.convert %6 : (tensor<50x60xbf16>) -> tensor<50x60xf32>
    %8 = stablehlo.slice %arg0 [1:2, 0:50] : (tensor<2x50xbf16>) -> tensor<1x50xbf16>
    %9 = stablehlo.reshape %8 : (tensor<1x50xbf16>) -> tensor<50xbf16>
    %10 = stablehlo.broadcast_in_dim %9, dims = [0] : (tensor<50xbf16>) -> tensor<50x60xbf16>
    %11 = stablehlo.maximum %10, %5 : tensor<50x60xbf16>
    %12 = stablehlo.convert %11 : (tensor<50x60xbf16>) -> tensor<50x60xf32>
    %13 = stablehlo.add %7, %12 : tensor<50x60xf32>
    %14 = stablehlo.add %1, %13 : tensor<50x60xf32>
    %15 = stablehlo.convert %14 : (tensor<50x60xf32>) -> tensor<50x60xbf16>
    return %15 : tensor<50x60xbf16>
  }
}
