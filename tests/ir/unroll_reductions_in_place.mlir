// rewrite unroll-reductions bytes first
// Nothing is transposed where memory comes first; a maximum folds in its init once, in two groups.
func.func public @main(%x: tensor<50x18xf32>, %y: tensor<60x18xf32>, %least: tensor<f32>) -> tensor<50x60xf32> {
  %0 = stablehlo.broadcast_in_dim %x, dims = [0, 2] : (tensor<50x18xf32>) -> tensor<50x60x18xf32>
  %1 = stablehlo.broadcast_in_dim %y, dims = [1, 2] : (tensor<60x18xf32>) -> tensor<50x60x18xf32>
  %2 = stablehlo.multiply %0, %1 : tensor<50x60x18xf32>
  %z = stablehlo.reduce(%2 init: %least) applies stablehlo.maximum across dimensions = [2] : (tensor<50x60x18xf32>, tensor<f32>) -> tensor<50x60xf32>
  return %z : tensor<50x60xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<50x18xf32>, %arg1: tensor<60x18xf32>, %arg2: tensor<f32>) -> tensor<50x60xf32> {
    %0 = stablehlo.broadcast_in_dim %arg2, dims = [] : (tensor<f32>) -> tensor<50x60xf32>
    %1 = stablehlo.slice %arg0 [0:50, 0:1] : (tensor<50x18xf32>) -> tensor<50x1xf32>
    %2 = stablehlo.broadcast_in_dim %1, dims = [0, 2] : (tensor<50x1xf32>) -> tensor<50x60x1xf32>
    %3 = stablehlo.slice %arg1 [0:60, 0:1] : (tensor<60x18xf32>) -> tensor<60x1xf32>
    %4 = stablehlo.broadcast_in_dim %3, dims = [1, 2] : (tensor<60x1xf32>) -> tensor<50x60x1xf32>
    %5 = stablehlo.multiply %2, %4 : tensor<50x60x1xf32>
    %6 = stablehlo.reshape %5 : (tensor<50x60x1xf32>) -> tensor<50x60xf32>
    %7 = stablehlo.slice %arg0 [0:50, 1:2] : (tensor<50x18xf32>) -> tensor<50x1xf32>
    %8 = stablehlo.broadcast_in_dim %7, dims = [0, 2] : (tensor<50x1xf32>) -> tensor<50x60x1xf32>
    %9 = stablehlo.slice %arg1 [0:60, 1:2] : (tensor<60x18xf32>) -> tensor<60x1xf32>
    %10 = stablehlo.broadcast_in_dim %9, dims = [1, 2] : (tensor<60x1xf32>) -> tensor<50x60x1xf32>
    %11 = stablehlo.multiply %8, %10 : tensor<50x60x1xf32>
    %12 = stablehlo.reshape %11 : (tensor<50x60x1xf32>) -> tensor<50x60xf32>
    %13 = stablehlo.maximum %6, %12 : tensor<50x60xf32>
    %14 = stablehlo.slice %arg0 [0:50, 2:3] : (tensor<50x18xf32>) -> tensor<50x1xf32>
    %15 = stablehlo.broadcast_in_dim %14, dims = [0, 2] : (tensor<50x1xf32>) -> tensor<50x60x1xf32>
    %16 = stablehlo.slice %arg1 [0:60, 2:3] : (tensor<60x18xf32>) -> tensor<60x1xf32>
    %17 = stablehlo.broadcast_in_dim %16, dims = [1, 2] : (tensor<60x1xf32>) -> tensor<50x60x1xf32>
    %18 = stablehlo.multiply %15, %17 : tensor<50x60x1xf32>
    %19 = stablehlo.reshape %18 : (tensor<50x60x1xf32>) -> tensor<50x60xf32>
    %20 = stablehlo.maximum %13, %19 : tensor<50x60xf32>
    %21 = stablehlo.slice %arg0 [0:50, 3:4] : (tensor<50x18xf32>) -> tensor<50x1xf32>
    %22 = stablehlo.broadcast_in_dim %21, dims = [0, 2] : (tensor<50x1xf32>) -> tensor<50x60x1xf32>
    %23 = stablehlo.slice %arg1 [0:60, 3:4] : (tensor<60x18xf32>) -> tensor<60x1xf32>
    %24 = stablehlo.broadcast_in_dim %23, dims = [1, 2] : (tensor<60x1xf32>) -> tensor<50x60x1xf32>
    %25 = stablehlo.multiply %22, %24 : tensor<50x60x1xf32>
    %26 = stablehlo.reshape %25 : (tensor<50x60x1xf32>) -> tensor<50x60xf32>
    %27 = stablehlo.maximum %20, %26 : tensor<50x60xf32>
    %28 = stablehlo.slice %arg0 [0:50, 4:5] : (tensor<50x18xf32>) -> tensor<50x1xf32>
    %29 = stablehlo.broadcast_in_dim %28, dims = [0, 2] : (tensor<50x1xf32>) -> tensor<50x60x1xf32>
    %30 = stablehlo.slice %arg1 [0:60, 4:5] : (tensor<60x18xf32>) -> tensor<60x1xf32>
    %31 = stablehlo.broadcast_in_dim %30, dims = [1, 2] : (tensor<60x1xf32>) -> tensor<50x60x1xf32>
    %32 = stablehlo.multiply %29, %31 : tensor<50x60x1xf32>
    %33 = stablehlo.reshape %32 : (tensor<50x60x1xf32>) -> tensor<50x60xf32>
    %34 = stablehlo.maximum %27, %33 : tensor<50x60xf32>
    %35 = stablehlo.slice %arg0 [0:50, 5:6] : (tensor<50x18xf32>) -> tensor<50x1xf32>
    %36 = stablehlo.broadcast_in_dim %35, dims = [0, 2] : (tensor<50x1xf32>) -> tensor<50x60x1xf32>
    %37 = stablehlo.slice %arg1 [0:60, 5:6] : (tensor<60x18xf32>) -> tensor<60x1xf32>
    %38 = stablehlo.broadcast_in_dim %37, dims = [1, 2] : (tensor<60x1xf32>) -> tensor<50x60x1xf32>
    %39 = stablehlo.multiply %36, %38 : tensor<50x60x1xf32>
    %40 = stablehlo.reshape %39 : (tensor<50x60x1xf32>) -> tensor<50x60xf32>
    %41 = stablehlo.maximum %34, %40 : tensor<50x60xf32>
    %42 = stablehlo.slice %arg0 [0:50, 6:7] : (tensor<50x18xf32>) -> tensor<50x1xf32>
    %43 = stablehlo.broadcast_in_dim %42, dims = [0, 2] : (tensor<50x1xf32>) -> tensor<50x60x1xf32>
    %44 = stablehlo.slice %arg1 [0:60, 6:7] : (tensor<60x18xf32>) -> tensor<60x1xf32>
    %45 = stablehlo.broadcast_in_dim %44, dims = [1, 2] : (tensor<60x1xf32>) -> tensor<50x60x1xf32>
    %46 = stablehlo.multiply %43, %45 : tensor<50x60x1xf32>
    %47 = stablehlo.reshape %46 : (tensor<50x60x1xf32>) -> tensor<50x60xf32>
    %48 = stablehlo.maximum %41, %47 : tensor<50x60xf32>
    %49 = stablehlo.slice %arg0 [0:50, 7:8] : (tensor<50x18xf32>) -> tensor<50x1xf32>
    %50 = stablehlo.broadcast_in_dim %49, dims = [0, 2] : (tensor<50x1xf32>) -> tensor<50x60x1xf32>
    %51 = stablehlo.slice %arg1 [0:60, 7:8] : (tensor<60x18xf32>) -> tensor<60x1xf32>
    %52 = stablehlo.broadcast_in_dim %51, dims = [1, 2] : (tensor<60x1xf32>) -> tensor<50x60x1xf32>
    %53 = stablehlo.multiply %50, %52 : tensor<50x60x1xf32>
    %54 = stablehlo.reshape %53 : (tensor<50x60x1xf32>) -> tensor<50x60xf32>
    %55 = stablehlo.maximum %48, %54 : tensor<50x60xf32>
    %56 = stablehlo.slice %arg0 [0:50, 8:9] : (tensor<50x18xf32>) -> tensor<50x1xf32>
    %57 = stablehlo.broadcast_in_dim %56, dims = [0, 2] : (tensor<50x1xf32>) -> tensor<50x60x1xf32>
    %58 = stablehlo.slice %arg1 [0:60, 8:9] : (tensor<60x18xf32>) -> tensor<60x1xf32>
    %59 = stablehlo.broadcast_in_dim %58, dims = [1, 2] : (tensor<60x1xf32>) -> tensor<50x60x1xf32>
    %60 = stablehlo.multiply %57, %59 : tensor<50x60x1xf32>
    %61 = stablehlo.reshape %60 : (tensor<50x60x1xf32>) -> tensor<50x60xf32>
    %62 = stablehlo.maximum %55, %61 : tensor<50x60xf32>
    %63 = stablehlo.slice %arg0 [0:50, 9:10] : (tensor<50x18xf32>) -> tensor<50x1xf32>
    %64 = stablehlo.broadcast_in_dim %63, dims = [0, 2] : (tensor<50x1xf32>) -> tensor<50x60x1xf32>
    %65 = stablehlo.slice %arg1 [0:60, 9:10] : (tensor<60x18xf32>) -> tensor<60x1xf32>
    %66 = stablehlo.broadcast_in_dim %65, dims = [1, 2] : (tensor<60x1xf32>) -> tensor<50x60x1xf32>
    %67 = stablehlo.multiply %64, %66 : tensor<50x60x1xf32>
    %68 = stablehlo.reshape %67 : (tensor<50x60x1xf32>) -> tensor<50x60xf32>
    %69 = stablehlo.maximum %62, %68 : tensor<50x60xf32>
    %70 = stablehlo.slice %arg0 [0:50, 10:11] : (tensor<50x18xf32>) -> tensor<50x1xf32>
    %71 = stablehlo.broadcast_in_dim %70, dims = [0, 2] : (tensor<50x1xf32>) -> tensor<50x60x1xf32>
    %72 = stablehlo.slice %arg1 [0:60, 10:11] : (tensor<60x18xf32>) -> tensor<60x1xf32>
    %73 = stablehlo.broadcast_in_dim %72, dims = [1, 2] : (tensor<60x1xf32>) -> tensor<50x60x1xf32>
    %74 = stablehlo.multiply %71, %73 : tensor<50x60x1xf32>
    %75 = stablehlo.reshape %74 : (tensor<50x60x1xf32>) -> tensor<50x60xf32>
    %76 = stablehlo.maximum %69, %75 : tensor<50x60xf32>
    %77 = stablehlo.slice %arg0 [0:50, 11:12] : (tensor<50x18xf32>) -> tensor<50x1xf32>
    %78 = stablehlo.broadcast_in_dim %77, dims = [0, 2] : (tensor<50x1xf32>) -> tensor<50x60x1xf32>
    %79 = stablehlo.slice %arg1 [0:60, 11:12] : (tensor<60x18xf32>) -> tensor<60x1xf32>
    %80 = stablehlo.broadcast_in_dim %79, dims = [1, 2] : (tensor<60x1xf32>) -> tensor<50x60x1xf32>
    %81 = stablehlo.multiply %78, %80 : tensor<50x60x1xf32>
    %82 = stablehlo.reshape %81 : (tensor<50x60x1xf32>) -> tensor<50x60xf32>
    %83 = stablehlo.maximum %76, %82 : tensor<50x60xf32>
    %84 = stablehlo.slice %arg0 [0:50, 12:13] : (tensor<50x18xf32>) -> tensor<50x1xf32>
    %85 = stablehlo.broadcast_in_dim %84, dims = [0, 2] : (tensor<50x1xf32>) -> tensor<50x60x1xf32>
    %86 = stablehlo.slice %arg1 [0:60, 12:13] : (tensor<60x18xf32>) -> tensor<60x1xf32>
    %87 = stablehlo.broadcast_in_dim %86, dims = [1, 2] : (tensor<60x1xf32>) -> tensor<50x60x1xf32>
    %88 = stablehlo.multiply %85, %87 : tensor<50x60x1xf32>
    %89 = stablehlo.reshape %88 : (tensor<50x60x1xf32>) -> tensor<50x60xf32>
    %90 = stablehlo.maximum %83, %89 : tensor<50x60xf32>
    %91 = stablehlo.slice %arg0 [0:50, 13:14] : (tensor<50x18xf32>) -> tensor<50x1xf32>
    %92 = stablehlo.broadcast_in_dim %91, dims = [0, 2] : (tensor<50x1xf32>) -> tensor<50x60x1xf32>
    %93 = stablehlo.slice %arg1 [0:60, 13:14] : (tensor<60x18xf32>) -> tensor<60x1xf32>
    %94 = stablehlo.broadcast_in_dim %93, dims = [1, 2] : (tensor<60x1xf32>) -> tensor<50x60x1xf32>
    %95 = stablehlo.multiply %92, %94 : tensor<50x60x1xf32>
    %96 = stablehlo.reshape %95 : (tensor<50x60x1xf32>) -> tensor<50x60xf32>
    %97 = stablehlo.maximum %90, %96 : tensor<50x60xf32>
    %98 = stablehlo.slice %arg0 [0:50, 14:15] : (tensor<50x18xf32>) -> tensor<50x1xf32>
    %99 = stablehlo.broadcast_in_dim %98, dims = [0, 2] : (tensor<50x1xf32>) -> tensor<50x60x1xf32>
    %100 = stablehlo.slice %arg1 [0:60, 14:15] : (tensor<60x18xf32>) -> tensor<60x1xf32>
    %101 = stablehlo.broadcast_in_dim %100, dims = [1, 2] : (tensor<60x1xf32>) -> tensor<50x60x1xf32>
    %102 = stablehlo.multiply %99, %101 : tensor<50x60x1xf32>
    %103 = stablehlo.reshape %102 : (tensor<50x60x1xf32>) -> tensor<50x60xf32>
    %104 = stablehlo.maximum %97, %103 : tensor<50x60xf32>
    %105 = stablehlo.slice %arg0 [0:50, 15:16] : (tensor<50x18xf32>) -> tensor<50x1xf32>
    %106 = stablehlo.broadcast_in_dim %105, dims = [0, 2] : (tensor<50x1xf32>) -> tensor<50x60x1xf32>
    %107 = stablehlo.slice %arg1 [0:60, 15:16] : (tensor<60x18xf32>) -> tensor<60x1xf32>
    %108 = stablehlo.broadcast_in_dim %107, dims = [1, 2] : (tensor<60x1xf32>) -> tensor<50x60x1xf32>
    %109 = stablehlo.multiply %106, %108 : tensor<50x60x1xf32>
    %110 = stablehlo.reshape %109 : (tensor<50x60x1xf32>) -> tensor<50x60xf32>
    %111 = stablehlo.maximum %104, %110 : tensor<50x60xf32>
    %112 = stablehlo.maximum %0, %111 : tensor<50x60xf32>
    %113 = stablehlo.slice %arg0 [0:50, 16:17] : (tensor<50x18xf32>) -> tensor<50x1xf32>
    %114 = stablehlo.broadcast_in_dim %113, dims = [0, 2] : (tensor<50x1xf32>) -> tensor<50x60x1xf32>
    %115 = stablehlo.slice %arg1 [0:60, 16:17] : (tensor<60x18xf32>) -> tensor<60x1xf32>
    %116 = stablehlo.broadcast_in_dim %115, dims = [1, 2] : (tensor<60x1xf32>) -> tensor<50x60x1xf32>
    %117 = stablehlo.multiply %114, %116 : tensor<50x60x1xf32>
    %118 = stablehlo.reshape %117 : (tensor<50x60x1xf32>) -> tensor<50x60xf32>
    %119 = stablehlo.slice %arg0 [0:50, 17:18] : (tensor<50x18xf32>) -> tensor<50x1xf32>
    %120 = stablehlo.broadcast_in_dim %119, dims = [0, 2] : (tensor<50x1xf32>) -> tensor<50x60x1xf32>
    %121 = stablehlo.slice %arg1 [0:60, 17:18] : (tensor<60x18xf32>) -> tensor<60x1xf32>
    %122 = stablehlo.broadcast_in_dim %121, dims = [1, 2] : (tensor<60x1xf32>) -> tensor<50x60x1xf32>
    %123 = stablehlo.multiply %120, %122 : tensor<50x60x1xf32>
    %124 = stablehlo.reshape %123 : (tensor<50x60x1xf32>) -> tensor<50x60xf32>
    %125 = stablehlo.maximum %118, %124 : tensor<50x60xf32>
    %126 = stablehlo.maximum %112, %125 : tensor<50x60xf32>
    return %126 : tensor<50x60xf32>
  }
}
