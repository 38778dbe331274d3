// canonicalize
// A composite of a CHLO op becomes that op, another one its decomposition.
func.func public @main(%x: tensor<4x8xf32>) -> (tensor<4x2xf32>, tensor<4x2xi32>, tensor<4x8xf32>) {
  %v, %i = stablehlo.composite "chlo.top_k" %x {composite_attributes = {k = 2 : i64, largest = true}, decomposition = @top_k} : (tensor<4x8xf32>) -> (tensor<4x2xf32>, tensor<4x2xi32>)
  %g = stablehlo.composite "mine.double" %x {decomposition = @double} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %v, %i, %g : tensor<4x2xf32>, tensor<4x2xi32>, tensor<4x8xf32>
}
func.func private @top_k(%x: tensor<4x8xf32>) -> (tensor<4x2xf32>, tensor<4x2xi32>) {
  %v, %i = chlo.top_k(%x, k = 2) : tensor<4x8xf32> -> (tensor<4x2xf32>, tensor<4x2xi32>)
  return %v, %i : tensor<4x2xf32>, tensor<4x2xi32>
}
func.func private @double(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %y = stablehlo.add %x, %x : tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<4x8xf32>) -> (tensor<4x2xf32>, tensor<4x2xi32>, tensor<4x8xf32>) {
    %values, %indices = chlo.top_k(%arg0, k = 2) {largest = true} : tensor<4x8xf32> -> (tensor<4x2xf32>, tensor<4x2xi32>)
    %0 = stablehlo.add %arg0, %arg0 : tensor<4x8xf32>
    return %values, %indices, %0 : tensor<4x2xf32>, tensor<4x2xi32>, tensor<4x8xf32>
  }
}
