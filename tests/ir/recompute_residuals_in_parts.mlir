// recompute-residuals
// No device has all of %w: what the first layer's gradient multiplies with it waits behind the barrier, and is gathered again.
sdy.mesh @mesh = <["x"=2]>
func.func public @main(%x: tensor<64x16xf32>, %w: tensor<16x64xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}, %v: tensor<64x16xf32>) -> (tensor<64x16xf32>, tensor<64x16xf32>, tensor<f32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %a = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<64x16xf32>, tensor<16x64xf32>) -> tensor<64x64xf32>
  %y = stablehlo.tanh %a : tensor<64x64xf32>
  %b = stablehlo.dot_general %y, %v, contracting_dims = [1] x [0] : (tensor<64x64xf32>, tensor<64x16xf32>) -> tensor<64x16xf32>
  %c = stablehlo.dot_general %b, %w, contracting_dims = [1] x [0] : (tensor<64x16xf32>, tensor<16x64xf32>) -> tensor<64x64xf32>
  %z = stablehlo.tanh %c : tensor<64x64xf32>
  %d = stablehlo.dot_general %z, %z, contracting_dims = [1] x [1] : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %s = stablehlo.reduce(%d init: %zero) applies stablehlo.add across dimensions = [0, 1] : (tensor<64x64xf32>, tensor<f32>) -> tensor<f32>
  %g = stablehlo.dot_general %d, %z, contracting_dims = [0] x [0] : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %h = stablehlo.dot_general %g, %w, contracting_dims = [1] x [1] : (tensor<64x64xf32>, tensor<16x64xf32>) -> tensor<64x16xf32>
  %gv = stablehlo.dot_general %y, %h, contracting_dims = [0] x [0] : (tensor<64x64xf32>, tensor<64x16xf32>) -> tensor<64x16xf32>
  %e = stablehlo.multiply %gv, %h : tensor<64x16xf32>
  %k = stablehlo.dot_general %e, %w, contracting_dims = [1] x [0] : (tensor<64x16xf32>, tensor<16x64xf32>) -> tensor<64x64xf32>
  %gx = stablehlo.dot_general %k, %w, contracting_dims = [1] x [1] : (tensor<64x64xf32>, tensor<16x64xf32>) -> tensor<64x16xf32>
  return %gv, %gx, %s : tensor<64x16xf32>, tensor<64x16xf32>, tensor<f32>
}

// -----
