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
    %2 = stablehlo.reshape %1 : (tensor<50x1xf32>) -> tensor<50xf32>
    %3 = stablehlo.broadcast_in_dim %2, dims = [0] : (tensor<50xf32>) -> tensor<50x60xf32>
    %4 = stablehlo.slice %arg1 [0:60, 0:1] : (tensor<60x18xf32>) -> tensor<60x1xf32>
    %5 = stablehlo.reshape %4 : (tensor<60x1xf32>) -> tensor<60xf32>
    %6 = stablehlo.broadcast_in_dim %5, dims = [1] : (tensor<60xf32>) -> tensor<50x60xf32>
    %7 = stablehlo.multiply %3, %6 : tensor<50x60xf32>
    %8 = stablehlo.slice %arg0 [0:50, 1:2] : (tensor<50x18xf32>) -> tensor<50x1xf32>
    %9 = stablehlo.reshape %8 : (tensor<50x1xf32>) -> tensor<50xf32>
    %10 = stablehlo.broadcast_in_dim %9, dims = [0] : (tensor<50xf32>) -> tensor<50x60xf32>
    %11 = stablehlo.slice %arg1 [0:60, 1:2] : (tensor<60x18xf32>) -> tensor<60x1xf32>
    %12 = stablehlo.reshape %11 : (tensor<60x1xf32>) -> tensor<60xf32>
    %13 = stablehlo.broadcast_in_dim %12, dims = [1] : (tensor<60xf32>) -> tensor<50x60xf32>
    %14 = stablehlo.multiply %10, %13 : tensor<50x60xf32>
    %15 = stablehlo.maximum %7, %14 : tensor<50x60xf32>
    %16 = stablehlo.slice %arg0 [0:50, 2:3] : (tensor<50x18xf32>) -> tensor<50x1xf32>
    %17 = stablehlo.reshape %16 : (tensor<50x1xf32>) -> tensor<50xf32>
    %18 = stablehlo.broadcast_in_dim %17, dims = [0] : (tensor<50xf32>) -> tensor<50x60xf32>
    %19 = stablehlo.slice %arg1 [0:60, 2:3] : (tensor<60x18xf32>) -> tensor<60x1xf32>
    %20 = stablehlo.reshape %19 : (tensor<60x1xf32>) -> tensor<60xf32>
    %21 = stablehlo.broadcast_in_dim %20, dims = [1] : (tensor<60xf32>) -> tensor<50x60xf32>
    %22 = stablehlo.multiply %18, %21 : tensor<50x60xf32>
    %23 = stablehlo.maximum %15, %22 : tensor<50x60xf32>
    %24 = stablehlo.slice %arg0 [0:50, 3:4] : (tensor<50x18xf32>) -> tensor<50x1xf32>
    %25 = stablehlo.reshape %24 : (tensor<50x1xf32>) -> tensor<50xf32>
    %26 = stablehlo.broadcast_in_dim %25, dims = [0] : (tensor<50xf32>) -> tensor<50x60xf32>
    %27 = stablehlo.slice %arg1 [0:60, 3:4] : (tensor<60x18xf32>) -> tensor<60x1xf32>
    %28 = stablehlo.reshape %27 : (tensor<60x1xf32>) -> tensor<60xf32>
    %29 = stablehlo.broadcast_in_dim %28, dims = [1] : (tensor<60xf32>) -> tensor<50x60xf32>
    %30 = stablehlo.multiply %26, %29 : tensor<50x60xf32>
    %31 = stablehlo.maximum %23, %30 : tensor<50x60xf32>
    %32 = stablehlo.slice %arg0 [0:50, 4:5] : (tensor<50x18xf32>) -> tensor<50x1xf32>
    %33 = stablehlo.reshape %32 : (tensor<50x1xf32>) -> tensor<50xf32>
    %34 = stablehlo.broadcast_in_dim %33, dims = [0] : (tensor<50xf32>) -> tensor<50x60xf32>
    %35 = stablehlo.slice %arg1 [0:60, 4:5] : (tensor<60x18xf32>) -> tensor<60x1xf32>
    %36 = stablehlo.reshape %35 : (tensor<60x1xf32>) -> tensor<60xf32>
    %37 = stablehlo.broadcast_in_dim %36, dims = [1] : (tensor<60xf32>) -> tensor<50x60xf32>
    %38 = stablehlo.multiply %34, %37 : tensor<50x60xf32>
    %39 = stablehlo.maximum %31, %38 : tensor<50x60xf32>
    %40 = stablehlo.slice %arg0 [0:50, 5:6] : (tensor<50x18xf32>) -> tensor<50x1xf32>
    %41 = stablehlo.reshape %40 : (tensor<50x1xf32>) -> tensor<50xf32>
    %42 = stablehlo.broadcast_in_dim %41, dims = [0] : (tensor<50xf32>) -> tensor<50x60xf32>
    %43 = stablehlo.slice %arg1 [0:60, 5:6] : (tensor<60x18xf32>) -> tensor<60x1xf32>
    %44 = stablehlo.reshape %43 : (tensor<60x1xf32>) -> tensor<60xf32>
    %45 = stablehlo.broadcast_in_dim %44, dims = [1] : (tensor<60xf32>) -> tensor<50x60xf32>
    %46 = stablehlo.multiply %42, %45 : tensor<50x60xf32>
    %47 = stablehlo.maximum %39, %46 : tensor<50x60xf32>
    %48 = stablehlo.slice %arg0 [0:50, 6:7] : (tensor<50x18xf32>) -> tensor<50x1xf32>
    %49 = stablehlo.reshape %48 : (tensor<50x1xf32>) -> tensor<50xf32>
    %50 = stablehlo.broadcast_in_dim %49, dims = [0] : (tensor<50xf32>) -> tensor<50x60xf32>
    %51 = stablehlo.slice %arg1 [0:60, 6:7] : (tensor<60x18xf32>) -> tensor<60x1xf32>
    %52 = stablehlo.reshape %51 : (tensor<60x1xf32>) -> tensor<60xf32>
    %53 = stablehlo.broadcast_in_dim %52, dims = [1] : (tensor<60xf32>) -> tensor<50x60xf32>
    %54 = stablehlo.multiply %50, %53 : tensor<50x60xf32>
    %55 = stablehlo.maximum %47, %54 : tensor<50x60xf32>
    %56 = stablehlo.slice %arg0 [0:50, 7:8] : (tensor<50x18xf32>) -> tensor<50x1xf32>
    %57 = stablehlo.reshape %56 : (tensor<50x1xf32>) -> tensor<50xf32>
    %58 = stablehlo.broadcast_in_dim %57, dims = [0] : (tensor<50xf32>) -> tensor<50x60xf32>
    %59 = stablehlo.slice %arg1 [0:60, 7:8] : (tensor<60x18xf32>) -> tensor<60x1xf32>
    %60 = stablehlo.reshape %59 : (tensor<60x1xf32>) -> tensor<60xf32>
    %61 = stablehlo.broadcast_in_dim %60, dims = [1] : (tensor<60xf32>) -> tensor<50x60xf32>
    %62 = stablehlo.multiply %58, %61 : tensor<50x60xf32>
    %63 = stablehlo.maximum %55, %62 : tensor<50x60xf32>
    %64 = stablehlo.slice %arg0 [0:50, 8:9] : (tensor<50x18xf32>) -> tensor<50x1xf32>
    %65 = stablehlo.reshape %64 : (tensor<50x1xf32>) -> tensor<50xf32>
    %66 = stablehlo.broadcast_in_dim %65, dims = [0] : (tensor<50xf32>) -> tensor<50x60xf32>
    %67 = stablehlo.slice %arg1 [0:60, 8:9] : (tensor<60x18xf32>) -> tensor<60x1xf32>
    %68 = stablehlo.reshape %67 : (tensor<60x1xf32>) -> tensor<60xf32>
    %69 = stablehlo.broadcast_in_dim %68, dims = [1] : (tensor<60xf32>) -> tensor<50x60xf32>
    %70 = stablehlo.multiply %66, %69 : tensor<50x60xf32>
    %71 = stablehlo.maximum %63, %70 : tensor<50x60xf32>
    %72 = stablehlo.slice %arg0 [0:50, 9:10] : (tensor<50x18xf32>) -> tensor<50x1xf32>
    %73 = stablehlo.reshape %72 : (tensor<50x1xf32>) -> tensor<50xf32>
    %74 = stablehlo.broadcast_in_dim %73, dims = [0] : (tensor<50xf32>) -> tensor<50x60xf32>
    %75 = stablehlo.slice %arg1 [0:60, 9:10] : (tensor<60x18xf32>) -> tensor<60x1xf32>
    %76 = stablehlo.reshape %75 : (tensor<60x1xf32>) -> tensor<60xf32>
    %77 = stablehlo.broadcast_in_dim %76, dims = [1] : (tensor<60xf32>) -> tensor<50x60xf32>
    %78 = stablehlo.multiply %74, %77 : tensor<50x60xf32>
    %79 = stablehlo.maximum %71, %78 : tensor<50x60xf32>
    %80 = stablehlo.slice %arg0 [0:50, 10:11] : (tensor<50x18xf32>) -> tensor<50x1xf32>
    %81 = stablehlo.reshape %80 : (tensor<50x1xf32>) -> tensor<50xf32>
    %82 = stablehlo.broadcast_in_dim %81, dims = [0] : (tensor<50xf32>) -> tensor<50x60xf32>
    %83 = stablehlo.slice %arg1 [0:60, 10:11] : (tensor<60x18xf32>) -> tensor<60x1xf32>
    %84 = stablehlo.reshape %83 : (tensor<60x1xf32>) -> tensor<60xf32>
    %85 = stablehlo.broadcast_in_dim %84, dims = [1] : (tensor<60xf32>) -> tensor<50x60xf32>
    %86 = stablehlo.multiply %82, %85 : tensor<50x60xf32>
    %87 = stablehlo.maximum %79, %86 : tensor<50x60xf32>
    %88 = stablehlo.slice %arg0 [0:50, 11:12] : (tensor<50x18xf32>) -> tensor<50x1xf32>
    %89 = stablehlo.reshape %88 : (tensor<50x1xf32>) -> tensor<50xf32>
    %90 = stablehlo.broadcast_in_dim %89, dims = [0] : (tensor<50xf32>) -> tensor<50x60xf32>
    %91 = stablehlo.slice %arg1 [0:60, 11:12] : (tensor<60x18xf32>) -> tensor<60x1xf32>
    %92 = stablehlo.reshape %91 : (tensor<60x1xf32>) -> tensor<60xf32>
    %93 = stablehlo.broadcast_in_dim %92, dims = [1] : (tensor<60xf32>) -> tensor<50x60xf32>
    %94 = stablehlo.multiply %90, %93 : tensor<50x60xf32>
    %95 = stablehlo.maximum %87, %94 : tensor<50x60xf32>
    %96 = stablehlo.slice %arg0 [0:50, 12:13] : (tensor<50x18xf32>) -> tensor<50x1xf32>
    %97 = stablehlo.reshape %96 : (tensor<50x1xf32>) -> tensor<50xf32>
    %98 = stablehlo.broadcast_in_dim %97, dims = [0] : (tensor<50xf32>) -> tensor<50x60xf32>
    %99 = stablehlo.slice %arg1 [0:60, 12:13] : (tensor<60x18xf32>) -> tensor<60x1xf32>
    %100 = stablehlo.reshape %99 : (tensor<60x1xf32>) -> tensor<60xf32>
    %101 = stablehlo.broadcast_in_dim %100, dims = [1] : (tensor<60xf32>) -> tensor<50x60xf32>
    %102 = stablehlo.multiply %98, %101 : tensor<50x60xf32>
    %103 = stablehlo.maximum %95, %102 : tensor<50x60xf32>
    %104 = stablehlo.slice %arg0 [0:50, 13:14] : (tensor<50x18xf32>) -> tensor<50x1xf32>
    %105 = stablehlo.reshape %104 : (tensor<50x1xf32>) -> tensor<50xf32>
    %106 = stablehlo.broadcast_in_dim %105, dims = [0] : (tensor<50xf32>) -> tensor<50x60xf32>
    %107 = stablehlo.slice %arg1 [0:60, 13:14] : (tensor<60x18xf32>) -> tensor<60x1xf32>
    %108 = stablehlo.reshape %107 : (tensor<60x1xf32>) -> tensor<60xf32>
    %109 = stablehlo.broadcast_in_dim %108, dims = [1] : (tensor<60xf32>) -> tensor<50x60xf32>
    %110 = stablehlo.multiply %106, %109 : tensor<50x60xf32>
    %111 = stablehlo.maximum %103, %110 : tensor<50x60xf32>
    %112 = stablehlo.slice %arg0 [0:50, 14:15] : (tensor<50x18xf32>) -> tensor<50x1xf32>
    %113 = stablehlo.reshape %112 : (tensor<50x1xf32>) -> tensor<50xf32>
    %114 = stablehlo.broadcast_in_dim %113, dims = [0] : (tensor<50xf32>) -> tensor<50x60xf32>
    %115 = stablehlo.slice %arg1 [0:60, 14:15] : (tensor<60x18xf32>) -> tensor<60x1xf32>
    %116 = stablehlo.reshape %115 : (tensor<60x1xf32>) -> tensor<60xf32>
    %117 = stablehlo.broadcast_in_dim %116, dims = [1] : (tensor<60xf32>) -> tensor<50x60xf32>
    %118 = stablehlo.multiply %114, %117 : tensor<50x60xf32>
    %119 = stablehlo.maximum %111, %118 : tensor<50x60xf32>
    %120 = stablehlo.slice %arg0 [0:50, 15:16] : (tensor<50x18xf32>) -> tensor<50x1xf32>
    %121 = stablehlo.reshape %120 : (tensor<50x1xf32>) -> tensor<50xf32>
    %122 = stablehlo.broadcast_in_dim %121, dims = [0] : (tensor<50xf32>) -> tensor<50x60xf32>
    %123 = stablehlo.slice %arg1 [0:60, 15:16] : (tensor<60x18xf32>) -> tensor<60x1xf32>
    %124 = stablehlo.reshape %123 : (tensor<60x1xf32>) -> tensor<60xf32>
    %125 = stablehlo.broadcast_in_dim %124, dims = [1] : (tensor<60xf32>) -> tensor<50x60xf32>
    %126 = stablehlo.multiply %122, %125 : tensor<50x60xf32>
    %127 = stablehlo.maximum %119, %126 : tensor<50x60xf32>
    %128 = stablehlo.maximum %0, %127 : tensor<50x60xf32>
    %129 = stablehlo.slice %arg0 [0:50, 16:17] : (tensor<50x18xf32>) -> tensor<50x1xf32>
    %130 = stablehlo.reshape %129 : (tensor<50x1xf32>) -> tensor<50xf32>
    %131 = stablehlo.broadcast_in_dim %130, dims = [0] : (tensor<50xf32>) -> tensor<50x60xf32>
    %132 = stablehlo.slice %arg1 [0:60, 16:17] : (tensor<60x18xf32>) -> tensor<60x1xf32>
    %133 = stablehlo.reshape %132 : (tensor<60x1xf32>) -> tensor<60xf32>
    %134 = stablehlo.broadcast_in_dim %133, dims = [1] : (tensor<60xf32>) -> tensor<50x60xf32>
    %135 = stablehlo.multiply %131, %134 : tensor<50x60xf32>
    %136 = stablehlo.slice %arg0 [0:50, 17:18] : (tensor<50x18xf32>) -> tensor<50x1xf32>
    %137 = stablehlo.reshape %136 : (tensor<50x1xf32>) -> tensor<50xf32>
    %138 = stablehlo.broadcast_in_dim %137, dims = [0] : (tensor<50xf32>) -> tensor<50x60xf32>
    %139 = stablehlo.slice %arg1 [0:60, 17:18] : (tensor<60x18xf32>) -> tensor<60x1xf32>
    %140 = stablehlo.reshape %139 : (tensor<60x1xf32>) -> tensor<60xf32>
    %141 = stablehlo.broadcast_in_dim %140, dims = [1] : (tensor<60xf32>) -> tensor<50x60xf32>
    %142 = stablehlo.multiply %138, %141 : tensor<50x60xf32>
    %143 = stablehlo.maximum %135, %142 : tensor<50x60xf32>
    %144 = stablehlo.maximum %128, %143 : tensor<50x60xf32>
    return %144 : tensor<50x60xf32>
  }
}
