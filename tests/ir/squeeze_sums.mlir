// rewrite squeeze-sums
// A mean square stays, and what is no sum of products, or leaves no dimension of one element.
func.func public @main(%x: tensor<1x5x4xf32>, %y: tensor<1x5x4xf32>) -> (tensor<1x5xf32>, tensor<1x4xf32>, tensor<f32>, tensor<1x5xf32>, tensor<1x5xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %one = stablehlo.constant dense<1.0> : tensor<f32>
  %p = stablehlo.multiply %x, %y : tensor<1x5x4xf32>
  %n = stablehlo.negate %p : tensor<1x5x4xf32>
  %a = stablehlo.reduce(%n init: %one) applies stablehlo.add across dimensions = [2] : (tensor<1x5x4xf32>, tensor<f32>) -> tensor<1x5xf32>
  %s = stablehlo.reduce(%y init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<1x5x4xf32>, tensor<f32>) -> tensor<1x4xf32>
  %t = stablehlo.broadcast_in_dim %s, dims = [0, 2] : (tensor<1x4xf32>) -> tensor<1x5x4xf32>
  %q = stablehlo.divide %x, %t : tensor<1x5x4xf32>
  %b = stablehlo.reduce(%q init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<1x5x4xf32>, tensor<f32>) -> tensor<1x4xf32>
  %r = stablehlo.multiply %x, %t : tensor<1x5x4xf32>
  %c = stablehlo.reduce(%r init: %zero) applies stablehlo.add across dimensions = [0, 1, 2] : (tensor<1x5x4xf32>, tensor<f32>) -> tensor<f32>
  %u = stablehlo.multiply %x, %x : tensor<1x5x4xf32>
  %d = stablehlo.reduce(%u init: %zero) applies stablehlo.add across dimensions = [2] : (tensor<1x5x4xf32>, tensor<f32>) -> tensor<1x5xf32>
  %v = stablehlo.multiply %y, %t : tensor<1x5x4xf32>
  %e = stablehlo.reduce(%v init: %zero) applies stablehlo.maximum across dimensions = [2] : (tensor<1x5x4xf32>, tensor<f32>) -> tensor<1x5xf32>
  return %a, %b, %c, %d, %e : tensor<1x5xf32>, tensor<1x4xf32>, tensor<f32>, tensor<1x5xf32>, tensor<1x5xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<1x5x4xf32>, %arg1: tensor<1x5x4xf32>) -> (tensor<1x5xf32>, tensor<1x4xf32>, tensor<f32>, tensor<1x5xf32>, tensor<1x5xf32>) {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %cst_0 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %0 = stablehlo.multiply %arg0, %arg1 : tensor<1x5x4xf32>
    %1 = stablehlo.negate %0 : tensor<1x5x4xf32>
    %2 = stablehlo.reshape %1 : (tensor<1x5x4xf32>) -> tensor<5x4xf32>
    %3 = stablehlo.reduce(%2 init: %cst_0) applies stablehlo.add across dimensions = [1] : (tensor<5x4xf32>, tensor<f32>) -> tensor<5xf32>
    %4 = stablehlo.reshape %3 : (tensor<5xf32>) -> tensor<1x5xf32>
    %5 = stablehlo.reduce(%arg1 init: %cst) applies stablehlo.add across dimensions = [1] : (tensor<1x5x4xf32>, tensor<f32>) -> tensor<1x4xf32>
    %6 = stablehlo.broadcast_in_dim %5, dims = [0, 2] : (tensor<1x4xf32>) -> tensor<1x5x4xf32>
    %7 = stablehlo.divide %arg0, %6 : tensor<1x5x4xf32>
    %8 = stablehlo.reshape %7 : (tensor<1x5x4xf32>) -> tensor<5x4xf32>
    %9 = stablehlo.reduce(%8 init: %cst) applies stablehlo.add across dimensions = [0] : (tensor<5x4xf32>, tensor<f32>) -> tensor<4xf32>
    %10 = stablehlo.reshape %9 : (tensor<4xf32>) -> tensor<1x4xf32>
    %11 = stablehlo.multiply %arg0, %6 : tensor<1x5x4xf32>
    %12 = stablehlo.reduce(%11 init: %cst) applies stablehlo.add across dimensions = [0, 1, 2] : (tensor<1x5x4xf32>, tensor<f32>) -> tensor<f32>
    %13 = stablehlo.multiply %arg0, %arg0 : tensor<1x5x4xf32>
    %14 = stablehlo.reduce(%13 init: %cst) applies stablehlo.add across dimensions = [2] : (tensor<1x5x4xf32>, tensor<f32>) -> tensor<1x5xf32>
    %15 = stablehlo.multiply %arg1, %6 : tensor<1x5x4xf32>
    %16 = stablehlo.reduce(%15 init: %cst) applies stablehlo.maximum across dimensions = [2] : (tensor<1x5x4xf32>, tensor<f32>) -> tensor<1x5xf32>
    return %4, %10, %12, %14, %16 : tensor<1x5xf32>, tensor<1x4xf32>, tensor<f32>, tensor<1x5xf32>, tensor<1x5xf32>
  }
}
