// The normal equations of alternating least squares, in four loops in loops, as a plan for few bytes makes them.
func.func public @main(
    %arg0: tensor<4096x4096xf32>, %arg1: tensor<4096x64xf32>, %0: tensor<4096x64x64xf32>, %8: tensor<64x64xf32>
) -> tensor<4096x64xf32> {
  %c = stablehlo.constant dense<128> : tensor<i32>
  %c_0 = stablehlo.constant dense<32> : tensor<i32>
  %cst = stablehlo.constant dense<0.000000e+00> : tensor<4096x64xf32>
  %c_2 = stablehlo.constant dense<1> : tensor<i32>
  %c_5 = stablehlo.constant dense<0> : tensor<i32>
  %cst_6 = stablehlo.constant dense<5.000000e-01> : tensor<f32>
  %9:2 = stablehlo.while(%iterArg = %c_5, %iterArg_7 = %cst) : tensor<i32>, tensor<4096x64xf32>
  cond {
    %10 = stablehlo.compare LT, %iterArg, %c_0 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %10 : tensor<i1>
  } do {
    %10 = stablehlo.multiply %iterArg, %c : tensor<i32>
    %11 = stablehlo.dynamic_slice %arg0, %10, %c_5, sizes = [128, 4096] : (tensor<4096x4096xf32>, tensor<i32>, tensor<i32>) -> tensor<128x4096xf32>
    %cst_8 = stablehlo.constant dense<0.000000e+00> : tensor<128x64x64xf32>
    %cst_9 = stablehlo.constant dense<0.000000e+00> : tensor<128x64xf32>
    %c_10 = stablehlo.constant dense<0> : tensor<i32>
    %12:3 = stablehlo.while(%iterArg_11 = %c_10, %iterArg_12 = %cst_8, %iterArg_13 = %cst_9) : tensor<i32>, tensor<128x64x64xf32>, tensor<128x64xf32>
    cond {
      %c_14 = stablehlo.constant dense<6> : tensor<i32>
      %44 = stablehlo.compare LT, %iterArg_11, %c_14 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %44 : tensor<i1>
    } do {
      %c_14 = stablehlo.constant dense<22> : tensor<i32>
      %44 = stablehlo.multiply %iterArg_11, %c_14 : tensor<i32>
      %c_15 = stablehlo.constant dense<106> : tensor<i32>
      %45 = stablehlo.minimum %44, %c_15 : tensor<i32>
      %46 = stablehlo.subtract %44, %45 : tensor<i32>
      %c_16 = stablehlo.constant dense<0> : tensor<i32>
      %47 = stablehlo.dynamic_slice %11, %45, %c_16, sizes = [22, 4096] : (tensor<128x4096xf32>, tensor<i32>, tensor<i32>) -> tensor<22x4096xf32>
      %cst_17 = stablehlo.constant dense<0.000000e+00> : tensor<22x64x64xf32>
      %cst_18 = stablehlo.constant dense<0.000000e+00> : tensor<22x64xf32>
      %c_19 = stablehlo.constant dense<0> : tensor<i32>
      %48:3 = stablehlo.while(%iterArg_23 = %c_19, %iterArg_24 = %cst_17, %iterArg_25 = %cst_18) : tensor<i32>, tensor<22x64x64xf32>, tensor<22x64xf32>
      cond {
        %c_26 = stablehlo.constant dense<2> : tensor<i32>
        %52 = stablehlo.compare LT, %iterArg_23, %c_26 : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %52 : tensor<i1>
      } do {
        %c_26 = stablehlo.constant dense<11> : tensor<i32>
        %52 = stablehlo.multiply %iterArg_23, %c_26 : tensor<i32>
        %c_27 = stablehlo.constant dense<0> : tensor<i32>
        %cst_28 = stablehlo.constant dense<0.000000e+00> : tensor<11x64x64xf32>
        %cst_29 = stablehlo.constant dense<0.000000e+00> : tensor<11x64xf32>
        %c_30 = stablehlo.constant dense<0> : tensor<i32>
        %53:3 = stablehlo.while(%iterArg_34 = %c_30, %iterArg_35 = %cst_28, %iterArg_36 = %cst_29) : tensor<i32>, tensor<11x64x64xf32>, tensor<11x64xf32>
        cond {
          %c_37 = stablehlo.constant dense<32> : tensor<i32>
          %61 = stablehlo.compare LT, %iterArg_34, %c_37 : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %61 : tensor<i1>
        } do {
          %c_37 = stablehlo.constant dense<128> : tensor<i32>
          %61 = stablehlo.multiply %iterArg_34, %c_37 : tensor<i32>
          %62 = stablehlo.broadcast_in_dim %cst_6, dims = [] : (tensor<f32>) -> tensor<11x128xf32>
          %c_38 = stablehlo.constant dense<0> : tensor<i32>
          %63 = stablehlo.dynamic_slice %47, %c_38, %61, sizes = [22, 128] : (tensor<22x4096xf32>, tensor<i32>, tensor<i32>) -> tensor<22x128xf32>
          %64 = stablehlo.dynamic_slice %63, %52, %c_27, sizes = [11, 128] : (tensor<22x128xf32>, tensor<i32>, tensor<i32>) -> tensor<11x128xf32>
          %65 = stablehlo.compare GT, %64, %62, FLOAT : (tensor<11x128xf32>, tensor<11x128xf32>) -> tensor<11x128xi1>
          %66 = stablehlo.convert %65 : (tensor<11x128xi1>) -> tensor<11x128xf32>
          %c_39 = stablehlo.constant dense<0> : tensor<i32>
          %67 = stablehlo.dynamic_slice %0, %61, %c_39, %c_39, sizes = [128, 64, 64] : (tensor<4096x64x64xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<128x64x64xf32>
          %68 = stablehlo.dot_general %66, %67, contracting_dims = [1] x [0] : (tensor<11x128xf32>, tensor<128x64x64xf32>) -> tensor<11x64x64xf32>
          %69 = stablehlo.multiply %64, %66 : tensor<11x128xf32>
          %c_40 = stablehlo.constant dense<0> : tensor<i32>
          %70 = stablehlo.dynamic_slice %arg1, %61, %c_40, sizes = [128, 64] : (tensor<4096x64xf32>, tensor<i32>, tensor<i32>) -> tensor<128x64xf32>
          %71 = stablehlo.dot_general %69, %70, contracting_dims = [1] x [0] : (tensor<11x128xf32>, tensor<128x64xf32>) -> tensor<11x64xf32>
          %72 = stablehlo.add %iterArg_35, %68 : tensor<11x64x64xf32>
          %73 = stablehlo.add %iterArg_36, %71 : tensor<11x64xf32>
          %c_41 = stablehlo.constant dense<1> : tensor<i32>
          %74 = stablehlo.add %iterArg_34, %c_41 : tensor<i32>
          stablehlo.return %74, %72, %73 : tensor<i32>, tensor<11x64x64xf32>, tensor<11x64xf32>
        }
        %54 = stablehlo.transpose %53#1, dims = [0, 2, 1] : (tensor<11x64x64xf32>) -> tensor<11x64x64xf32>
        %55 = stablehlo.broadcast_in_dim %8, dims = [1, 2] : (tensor<64x64xf32>) -> tensor<1x64x64xf32>
        %56 = stablehlo.broadcast_in_dim %55, dims = [0, 1, 2] : (tensor<1x64x64xf32>) -> tensor<11x64x64xf32>
        %57 = stablehlo.add %54, %56 : tensor<11x64x64xf32>
        %c_31 = stablehlo.constant dense<0> : tensor<i32>
        %58 = stablehlo.dynamic_update_slice %iterArg_24, %57, %52, %c_31, %c_31 : (tensor<22x64x64xf32>, tensor<11x64x64xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<22x64x64xf32>
        %c_32 = stablehlo.constant dense<0> : tensor<i32>
        %59 = stablehlo.dynamic_update_slice %iterArg_25, %53#2, %52, %c_32 : (tensor<22x64xf32>, tensor<11x64xf32>, tensor<i32>, tensor<i32>) -> tensor<22x64xf32>
        %c_33 = stablehlo.constant dense<1> : tensor<i32>
        %60 = stablehlo.add %iterArg_23, %c_33 : tensor<i32>
        stablehlo.return %60, %58, %59 : tensor<i32>, tensor<22x64x64xf32>, tensor<22x64xf32>
      }
      %c_20 = stablehlo.constant dense<0> : tensor<i32>
      %49 = stablehlo.dynamic_update_slice %iterArg_12, %48#1, %45, %c_20, %c_20 : (tensor<128x64x64xf32>, tensor<22x64x64xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<128x64x64xf32>
      %c_21 = stablehlo.constant dense<0> : tensor<i32>
      %50 = stablehlo.dynamic_update_slice %iterArg_13, %48#2, %45, %c_21 : (tensor<128x64xf32>, tensor<22x64xf32>, tensor<i32>, tensor<i32>) -> tensor<128x64xf32>
      %c_22 = stablehlo.constant dense<1> : tensor<i32>
      %51 = stablehlo.add %iterArg_11, %c_22 : tensor<i32>
      stablehlo.return %51, %49, %50 : tensor<i32>, tensor<128x64x64xf32>, tensor<128x64xf32>
    }
    %13 = stablehlo.dot_general %12#1, %12#2, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<128x64x64xf32>, tensor<128x64xf32>) -> tensor<128x64xf32>
    %14 = stablehlo.dynamic_update_slice %iterArg_7, %13, %10, %c_5 : (tensor<4096x64xf32>, tensor<128x64xf32>, tensor<i32>, tensor<i32>) -> tensor<4096x64xf32>
    %15 = stablehlo.add %iterArg, %c_2 : tensor<i32>
    stablehlo.return %15, %14 : tensor<i32>, tensor<4096x64xf32>
  }
  return %9#1 : tensor<4096x64xf32>
}
