// rewrite cudnn-attention
func.func public @main(%arg0: tensor<128x64xbf16>, %arg1: tensor<128x64xbf16>, %arg2: tensor<128x64xbf16>, %arg3: tensor<128x64xbf16>) -> (tensor<128x64xbf16>, tensor<128x64xbf16>, tensor<128x64xbf16>) {
  %cst = stablehlo.constant dense<1.000000e+00> : tensor<f32>
  %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
  %cst_1 = stablehlo.constant dense<-1.000000e+30> : tensor<f32>
  %cst_2 = stablehlo.constant dense<1.250000e-01> : tensor<f32>
  %0 = stablehlo.transpose %arg1, dims = [1, 0] : (tensor<128x64xbf16>) -> tensor<64x128xbf16>
  %1 = stablehlo.dot_general %arg0, %0, contracting_dims = [1] x [0] : (tensor<128x64xbf16>, tensor<64x128xbf16>) -> tensor<128x128xbf16>
  %2 = stablehlo.convert %1 : (tensor<128x128xbf16>) -> tensor<128x128xf32>
  %3 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<f32>) -> tensor<128x128xf32>
  %4 = stablehlo.multiply %2, %3 : tensor<128x128xf32>
  %5 = stablehlo.iota dim = 0 : tensor<128xi32>
  %6 = stablehlo.broadcast_in_dim %5, dims = [0] : (tensor<128xi32>) -> tensor<128x1xi32>
  %7 = stablehlo.broadcast_in_dim %5, dims = [1] : (tensor<128xi32>) -> tensor<1x128xi32>
  %8 = stablehlo.broadcast_in_dim %6, dims = [0, 1] : (tensor<128x1xi32>) -> tensor<128x128xi32>
  %9 = stablehlo.broadcast_in_dim %7, dims = [0, 1] : (tensor<1x128xi32>) -> tensor<128x128xi32>
  %10 = stablehlo.compare GE, %8, %9, SIGNED : (tensor<128x128xi32>, tensor<128x128xi32>) -> tensor<128x128xi1>
  %11 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<128x128xf32>
  %12 = stablehlo.select %10, %4, %11 : tensor<128x128xi1>, tensor<128x128xf32>
  %13 = stablehlo.exponential %12 : tensor<128x128xf32>
  %14 = stablehlo.reduce(%13 init: %cst_0) applies stablehlo.add across dimensions = [1] : (tensor<128x128xf32>, tensor<f32>) -> tensor<128xf32>
  %15 = stablehlo.broadcast_in_dim %14, dims = [0] : (tensor<128xf32>) -> tensor<128x1xf32>
  %16 = stablehlo.broadcast_in_dim %15, dims = [0, 1] : (tensor<128x1xf32>) -> tensor<128x128xf32>
  %17 = stablehlo.divide %13, %16 : tensor<128x128xf32>
  %18 = stablehlo.multiply %15, %15 : tensor<128x1xf32>
  %19 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<128x1xf32>
  %20 = stablehlo.divide %19, %18 : tensor<128x1xf32>
  %21 = stablehlo.convert %17 : (tensor<128x128xf32>) -> tensor<128x128xbf16>
  %22 = stablehlo.dot_general %arg3, %21, contracting_dims = [0] x [0] : (tensor<128x64xbf16>, tensor<128x128xbf16>) -> tensor<64x128xbf16>
  %23 = stablehlo.transpose %22, dims = [1, 0] : (tensor<64x128xbf16>) -> tensor<128x64xbf16>
  %24 = stablehlo.dot_general %arg3, %arg2, contracting_dims = [1] x [1] : (tensor<128x64xbf16>, tensor<128x64xbf16>) -> tensor<128x128xbf16>
  %25 = stablehlo.convert %24 : (tensor<128x128xbf16>) -> tensor<128x128xf32>
  %26 = stablehlo.broadcast_in_dim %20, dims = [0, 1] : (tensor<128x1xf32>) -> tensor<128x128xf32>
  %27 = stablehlo.multiply %25, %26 : tensor<128x128xf32>
  %28 = stablehlo.multiply %27, %13 : tensor<128x128xf32>
  %29 = stablehlo.reduce(%28 init: %cst_0) applies stablehlo.add across dimensions = [1] : (tensor<128x128xf32>, tensor<f32>) -> tensor<128xf32>
  %30 = stablehlo.reshape %29 : (tensor<128xf32>) -> tensor<128x1xf32>
  %31 = stablehlo.negate %30 : tensor<128x1xf32>
  %32 = stablehlo.divide %25, %16 : tensor<128x128xf32>
  %33 = stablehlo.reduce(%31 init: %cst_0) applies stablehlo.add across dimensions = [1] : (tensor<128x1xf32>, tensor<f32>) -> tensor<128xf32>
  %34 = stablehlo.broadcast_in_dim %33, dims = [0] : (tensor<128xf32>) -> tensor<128x128xf32>
  %35 = stablehlo.add %32, %34 : tensor<128x128xf32>
  %36 = stablehlo.multiply %35, %13 : tensor<128x128xf32>
  %37 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<128x128xf32>
  %38 = stablehlo.select %10, %36, %37 : tensor<128x128xi1>, tensor<128x128xf32>
  %39 = stablehlo.multiply %38, %3 : tensor<128x128xf32>
  %40 = stablehlo.convert %39 : (tensor<128x128xf32>) -> tensor<128x128xbf16>
  %41 = stablehlo.dot_general %40, %arg0, contracting_dims = [0] x [0] : (tensor<128x128xbf16>, tensor<128x64xbf16>) -> tensor<128x64xbf16>
  %42 = stablehlo.transpose %41, dims = [1, 0] : (tensor<128x64xbf16>) -> tensor<64x128xbf16>
  %43 = stablehlo.dot_general %40, %0, contracting_dims = [1] x [1] : (tensor<128x128xbf16>, tensor<64x128xbf16>) -> tensor<128x64xbf16>
  %44 = stablehlo.transpose %42, dims = [1, 0] : (tensor<64x128xbf16>) -> tensor<128x64xbf16>
  return %43, %44, %23 : tensor<128x64xbf16>, tensor<128x64xbf16>, tensor<128x64xbf16>
}

// -----
module {
  func.func public @main(%arg0: tensor<128x64xbf16>, %arg1: tensor<128x64xbf16>, %arg2: tensor<128x64xbf16>, %arg3: tensor<128x64xbf16>) -> (tensor<128x64xbf16>, tensor<128x64xbf16>, tensor<128x64xbf16>) {
    %0 = stablehlo.reshape %arg0 : (tensor<128x64xbf16>) -> tensor<1x1x128x64xbf16>
    %1 = stablehlo.reshape %arg1 : (tensor<128x64xbf16>) -> tensor<1x1x128x64xbf16>
    %2 = stablehlo.reshape %arg2 : (tensor<128x64xbf16>) -> tensor<1x1x128x64xbf16>
    %3:3 = stablehlo.custom_call @__cudnn$fmhaSoftmax(%0, %1, %2) {api_version = 2 : i32, backend_config = "{\22operation_queue_id\22: \220\22, \22cudnn_fmha_backend_config\22: {\22algorithm\22: {\22algo_id\22: \220\22, \22math_type\22: \22TENSOR_OP_MATH\22, \22tuning_knobs\22: {\2217\22: \221\22, \2224\22: \220\22}, \22is_cudnn_frontend\22: true, \22workspace_size\22: \220\22}, \22fmha_scale\22: 0.125, \22intermediate_tensor_shape\22: {\22element_type\22: \22BF16\22, \22dimensions\22: [\221\22, \221\22, \22128\22, \22128\22], \22tuple_shapes\22: [], \22layout\22: {\22dim_level_types\22: [], \22dim_unique\22: [], \22dim_ordered\22: [], \22minor_to_major\22: [\223\22, \222\22, \221\22, \220\22], \22tiles\22: [], \22element_size_in_bits\22: \220\22, \22memory_space\22: \220\22, \22index_primitive_type\22: \22PRIMITIVE_TYPE_INVALID\22, \22pointer_primitive_type\22: \22PRIMITIVE_TYPE_INVALID\22, \22dynamic_shape_metadata_prefix_bytes\22: \220\22}, \22is_dynamic_dimension\22: [false, false, false, false]}, \22is_flash_attention\22: true, \22mask_type\22: \22CAUSAL\22, \22bmm1_dot_dimension_numbers\22: {\22lhs_contracting_dimensions\22: [\223\22], \22rhs_contracting_dimensions\22: [\223\22], \22lhs_batch_dimensions\22: [\220\22, \221\22], \22rhs_batch_dimensions\22: [\220\22, \221\22]}, \22bmm2_dot_dimension_numbers\22: {\22lhs_contracting_dimensions\22: [\223\22], \22rhs_contracting_dimensions\22: [\222\22], \22lhs_batch_dimensions\22: [\220\22, \221\22], \22rhs_batch_dimensions\22: [\220\22, \221\22]}, \22dropout_rate\22: 0.0, \22seed\22: 0, \22sliding_window_length\22: 0, \22max_seg_per_batch\22: 1, \22is_paged_attention\22: false}}", operand_layouts = [dense<[3, 2, 1, 0]> : tensor<4xindex>, dense<[3, 2, 1, 0]> : tensor<4xindex>, dense<[3, 2, 1, 0]> : tensor<4xindex>], result_layouts = [dense<[3, 2, 1, 0]> : tensor<4xindex>, dense<[2, 1, 0]> : tensor<3xindex>, dense<0> : tensor<1xindex>]} : (tensor<1x1x128x64xbf16>, tensor<1x1x128x64xbf16>, tensor<1x1x128x64xbf16>) -> (tensor<1x1x128x64xbf16>, tensor<1x1x128xf32>, tensor<0xui8>)
    %4 = stablehlo.transpose %3#0, dims = [0, 1, 2, 3] : (tensor<1x1x128x64xbf16>) -> tensor<1x1x128x64xbf16>
    %5 = stablehlo.reshape %arg3 : (tensor<128x64xbf16>) -> tensor<1x1x128x64xbf16>
    %6:4 = stablehlo.custom_call @__cudnn$fmhaSoftmaxBackward(%0, %1, %2, %3#1, %5, %4) {api_version = 2 : i32, backend_config = "{\22operation_queue_id\22: \220\22, \22cudnn_fmha_backend_config\22: {\22algorithm\22: {\22algo_id\22: \220\22, \22math_type\22: \22TENSOR_OP_MATH\22, \22tuning_knobs\22: {\2217\22: \221\22, \2224\22: \220\22}, \22is_cudnn_frontend\22: true, \22workspace_size\22: \220\22}, \22fmha_scale\22: 0.125, \22intermediate_tensor_shape\22: {\22element_type\22: \22BF16\22, \22dimensions\22: [\221\22, \221\22, \22128\22, \22128\22], \22tuple_shapes\22: [], \22layout\22: {\22dim_level_types\22: [], \22dim_unique\22: [], \22dim_ordered\22: [], \22minor_to_major\22: [\223\22, \222\22, \221\22, \220\22], \22tiles\22: [], \22element_size_in_bits\22: \220\22, \22memory_space\22: \220\22, \22index_primitive_type\22: \22PRIMITIVE_TYPE_INVALID\22, \22pointer_primitive_type\22: \22PRIMITIVE_TYPE_INVALID\22, \22dynamic_shape_metadata_prefix_bytes\22: \220\22}, \22is_dynamic_dimension\22: [false, false, false, false]}, \22is_flash_attention\22: true, \22mask_type\22: \22CAUSAL\22, \22bmm1_grad_gemm1_dot_dimension_numbers\22: {\22lhs_contracting_dimensions\22: [\222\22], \22rhs_contracting_dimensions\22: [\222\22], \22lhs_batch_dimensions\22: [\220\22, \221\22], \22rhs_batch_dimensions\22: [\220\22, \221\22]}, \22bmm1_grad_gemm2_dot_dimension_numbers\22: {\22lhs_contracting_dimensions\22: [\223\22], \22rhs_contracting_dimensions\22: [\222\22], \22lhs_batch_dimensions\22: [\220\22, \221\22], \22rhs_batch_dimensions\22: [\220\22, \221\22]}, \22bmm2_grad_gemm1_dot_dimension_numbers\22: {\22lhs_contracting_dimensions\22: [\222\22], \22rhs_contracting_dimensions\22: [\222\22], \22lhs_batch_dimensions\22: [\220\22, \221\22], \22rhs_batch_dimensions\22: [\220\22, \221\22]}, \22bmm2_grad_gemm2_dot_dimension_numbers\22: {\22lhs_contracting_dimensions\22: [\223\22], \22rhs_contracting_dimensions\22: [\223\22], \22lhs_batch_dimensions\22: [\220\22, \221\22], \22rhs_batch_dimensions\22: [\220\22, \221\22]}, \22dropout_rate\22: 0.0, \22seed\22: 0, \22sliding_window_length\22: 0, \22max_seg_per_batch\22: 1, \22is_paged_attention\22: false}}", operand_layouts = [dense<[3, 2, 1, 0]> : tensor<4xindex>, dense<[3, 2, 1, 0]> : tensor<4xindex>, dense<[3, 2, 1, 0]> : tensor<4xindex>, dense<[2, 1, 0]> : tensor<3xindex>, dense<[3, 2, 1, 0]> : tensor<4xindex>, dense<[3, 2, 1, 0]> : tensor<4xindex>], result_layouts = [dense<[3, 2, 1, 0]> : tensor<4xindex>, dense<[3, 2, 1, 0]> : tensor<4xindex>, dense<[3, 2, 1, 0]> : tensor<4xindex>, dense<0> : tensor<1xindex>]} : (tensor<1x1x128x64xbf16>, tensor<1x1x128x64xbf16>, tensor<1x1x128x64xbf16>, tensor<1x1x128xf32>, tensor<1x1x128x64xbf16>, tensor<1x1x128x64xbf16>) -> (tensor<1x1x128x64xbf16>, tensor<1x1x128x64xbf16>, tensor<1x1x128x64xbf16>, tensor<0xui8>)
    %7 = stablehlo.transpose %6#2, dims = [0, 1, 2, 3] : (tensor<1x1x128x64xbf16>) -> tensor<1x1x128x64xbf16>
    %8 = stablehlo.reshape %7 : (tensor<1x1x128x64xbf16>) -> tensor<128x64xbf16>
    %9 = stablehlo.transpose %8, dims = [1, 0] : (tensor<128x64xbf16>) -> tensor<64x128xbf16>
    %10 = stablehlo.transpose %9, dims = [1, 0] : (tensor<64x128xbf16>) -> tensor<128x64xbf16>
    %11 = stablehlo.transpose %6#1, dims = [0, 1, 2, 3] : (tensor<1x1x128x64xbf16>) -> tensor<1x1x128x64xbf16>
    %12 = stablehlo.reshape %11 : (tensor<1x1x128x64xbf16>) -> tensor<128x64xbf16>
    %13 = stablehlo.transpose %12, dims = [1, 0] : (tensor<128x64xbf16>) -> tensor<64x128xbf16>
    %14 = stablehlo.transpose %6#0, dims = [0, 1, 2, 3] : (tensor<1x1x128x64xbf16>) -> tensor<1x1x128x64xbf16>
    %15 = stablehlo.reshape %14 : (tensor<1x1x128x64xbf16>) -> tensor<128x64xbf16>
    %16 = stablehlo.transpose %13, dims = [1, 0] : (tensor<64x128xbf16>) -> tensor<128x64xbf16>
    return %15, %16, %10 : tensor<128x64xbf16>, tensor<128x64xbf16>, tensor<128x64xbf16>
  }
}
