module @a_inference__lambda__909__.7 attributes {mhlo.cross_program_prefetches = [], mhlo.input_output_alias = [], mhlo.is_dynamic = false, mhlo.use_auto_spmd_partitioning = false} {
  func.func private @sequential_2_1_lstm_1_while_cond_820_const_0__.3(%arg0: tensor<i32>, %arg1: tensor<i32>, %arg2: tensor<i32>, %arg3: tensor<1x1x2xf32>, %arg4: tensor<i32>, %arg5: tensor<1x2xf32>, %arg6: tensor<1x2xf32>, %arg7: tensor<3x1x2xf32>, %arg8: tensor<i32>, %arg9: tensor<2x8xf32>, %arg10: tensor<2x8xf32>, %arg11: tensor<8xf32>) -> tensor<i1> {
    %c = stablehlo.constant dense<3> : tensor<i32>
    %0 = stablehlo.compare  LT, %arg0, %c : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %c_0 = stablehlo.constant dense<3> : tensor<i32>
    %1 = stablehlo.compare  LT, %arg2, %c_0 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %2 = stablehlo.and %0, %1 : tensor<i1>
    %3 = stablehlo.reshape %2 : (tensor<i1>) -> tensor<i1>
    return %3 : tensor<i1>
  }
  func.func private @cond_wrapper.4(%arg0: tensor<i32>, %arg1: tensor<i32>, %arg2: tensor<i32>, %arg3: tensor<1x1x2xf32>, %arg4: tensor<i32>, %arg5: tensor<1x2xf32>, %arg6: tensor<1x2xf32>, %arg7: tensor<3x1x2xf32>, %arg8: tensor<i32>, %arg9: tensor<2x8xf32>, %arg10: tensor<2x8xf32>, %arg11: tensor<8xf32>) -> tensor<i1> {
    %0 = call @sequential_2_1_lstm_1_while_cond_820_const_0__.3(%arg0, %arg1, %arg2, %arg3, %arg4, %arg5, %arg6, %arg7, %arg8, %arg9, %arg10, %arg11) : (tensor<i32>, tensor<i32>, tensor<i32>, tensor<1x1x2xf32>, tensor<i32>, tensor<1x2xf32>, tensor<1x2xf32>, tensor<3x1x2xf32>, tensor<i32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<8xf32>) -> tensor<i1>
    return %0 : tensor<i1>
  }
  func.func private @sequential_2_1_lstm_1_while_body_821_const_0__.5(%arg0: tensor<i32>, %arg1: tensor<i32>, %arg2: tensor<i32>, %arg3: tensor<1x1x2xf32>, %arg4: tensor<i32>, %arg5: tensor<1x2xf32>, %arg6: tensor<1x2xf32>, %arg7: tensor<3x1x2xf32>, %arg8: tensor<i32>, %arg9: tensor<2x8xf32>, %arg10: tensor<2x8xf32>, %arg11: tensor<8xf32>) -> (tensor<i32>, tensor<i32>, tensor<i32>, tensor<1x1x2xf32>, tensor<i32>, tensor<1x2xf32>, tensor<1x2xf32>, tensor<3x1x2xf32>, tensor<i32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<8xf32>) {
    %c = stablehlo.constant dense<1> : tensor<i32>
    %c_0 = stablehlo.constant dense<1> : tensor<i32>
    %0 = stablehlo.add %arg0, %c_0 : tensor<i32>
    %1 = stablehlo.reshape %0 : (tensor<i32>) -> tensor<i32>
    %2 = stablehlo.reshape %arg1 : (tensor<i32>) -> tensor<i32>
    %c_1 = stablehlo.constant dense<1> : tensor<i32>
    %3 = stablehlo.add %arg2, %c_1 : tensor<i32>
    %4 = stablehlo.reshape %3 : (tensor<i32>) -> tensor<i32>
    %c_2 = stablehlo.constant dense<0> : tensor<i32>
    %5 = stablehlo.dynamic_slice %arg7, %arg2, %c_2, %c_2, sizes = [1, 1, 2] : (tensor<3x1x2xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x1x2xf32>
    %6 = stablehlo.reshape %5 : (tensor<1x1x2xf32>) -> tensor<1x2xf32>
    %7 = stablehlo.dot %6, %arg9, precision = [DEFAULT, DEFAULT] {mhlo.frontend_attributes = {grad_x = "false", grad_y = "false"}} : (tensor<1x2xf32>, tensor<2x8xf32>) -> tensor<1x8xf32>
    %8 = stablehlo.transpose %7, dims = [0, 1] : (tensor<1x8xf32>) -> tensor<1x8xf32>
    %9 = stablehlo.dot %arg5, %arg10, precision = [DEFAULT, DEFAULT] {mhlo.frontend_attributes = {grad_x = "false", grad_y = "false"}} : (tensor<1x2xf32>, tensor<2x8xf32>) -> tensor<1x8xf32>
    %10 = stablehlo.transpose %9, dims = [0, 1] : (tensor<1x8xf32>) -> tensor<1x8xf32>
    %11 = stablehlo.reshape %10 : (tensor<1x8xf32>) -> tensor<8xf32>
    %12 = stablehlo.broadcast_in_dim %11, dims = [1] : (tensor<8xf32>) -> tensor<1x8xf32>
    %13 = stablehlo.add %8, %12 : tensor<1x8xf32>
    %14 = stablehlo.broadcast_in_dim %arg11, dims = [1] : (tensor<8xf32>) -> tensor<1x8xf32>
    %15 = stablehlo.add %13, %14 : tensor<1x8xf32>
    %16 = stablehlo.slice %15 [0:1, 6:8] : (tensor<1x8xf32>) -> tensor<1x2xf32>
    %17 = stablehlo.logistic %16 : tensor<1x2xf32>
    %18 = stablehlo.slice %15 [0:1, 2:4] : (tensor<1x8xf32>) -> tensor<1x2xf32>
    %19 = stablehlo.logistic %18 : tensor<1x2xf32>
    %20 = stablehlo.multiply %19, %arg6 : tensor<1x2xf32>
    %21 = stablehlo.slice %15 [0:1, 0:2] : (tensor<1x8xf32>) -> tensor<1x2xf32>
    %22 = stablehlo.logistic %21 : tensor<1x2xf32>
    %23 = stablehlo.slice %15 [0:1, 4:6] : (tensor<1x8xf32>) -> tensor<1x2xf32>
    %24 = stablehlo.tanh %23 : tensor<1x2xf32>
    %25 = stablehlo.multiply %22, %24 : tensor<1x2xf32>
    %26 = stablehlo.add %20, %25 : tensor<1x2xf32>
    %27 = stablehlo.tanh %26 : tensor<1x2xf32>
    %28 = stablehlo.multiply %17, %27 : tensor<1x2xf32>
    %29 = stablehlo.reshape %28 : (tensor<1x2xf32>) -> tensor<1x1x2xf32>
    %c_3 = stablehlo.constant dense<0> : tensor<i32>
    %c_4 = stablehlo.constant dense<0> : tensor<i32>
    %30 = stablehlo.dynamic_update_slice %arg3, %29, %c_3, %c_4, %c_4 : (tensor<1x1x2xf32>, tensor<1x1x2xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x1x2xf32>
    %31 = stablehlo.reshape %28 : (tensor<1x2xf32>) -> tensor<1x2xf32>
    %32 = stablehlo.reshape %26 : (tensor<1x2xf32>) -> tensor<1x2xf32>
    %33 = stablehlo.reshape %arg9 : (tensor<2x8xf32>) -> tensor<2x8xf32>
    %34 = mhlo.copy %33 : tensor<2x8xf32>
    %35 = stablehlo.reshape %arg10 : (tensor<2x8xf32>) -> tensor<2x8xf32>
    %36 = mhlo.copy %35 : tensor<2x8xf32>
    %37 = stablehlo.reshape %arg11 : (tensor<8xf32>) -> tensor<8xf32>
    %38 = mhlo.copy %37 : tensor<8xf32>
    return %1, %2, %4, %30, %arg4, %31, %32, %arg7, %arg8, %34, %36, %38 : tensor<i32>, tensor<i32>, tensor<i32>, tensor<1x1x2xf32>, tensor<i32>, tensor<1x2xf32>, tensor<1x2xf32>, tensor<3x1x2xf32>, tensor<i32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<8xf32>
  }
  func.func private @Sum_reduction.6(%arg0: tensor<f32>, %arg1: tensor<f32>) -> tensor<f32> {
    %0 = stablehlo.add %arg0, %arg1 : tensor<f32>
    return %0 : tensor<f32>
  }
  func.func @main(%arg0: tensor<1x3x2xf32>, %arg1: tensor<2x8xf32>, %arg2: tensor<2x8xf32>, %arg3: tensor<8xf32>) -> tensor<f32> {
    %c = stablehlo.constant dense<-1> : tensor<i32>
    %c_0 = stablehlo.constant dense<3> : tensor<i32>
    %c_1 = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.broadcast_in_dim %c_1, dims = [] : (tensor<i32>) -> tensor<3xi32>
    %c_2 = stablehlo.constant dense<[1, 2]> : tensor<2xi32>
    %c_3 = stablehlo.constant dense<1> : tensor<i32>
    %c_4 = stablehlo.constant dense<1> : tensor<i32>
    %c_5 = stablehlo.constant dense<2> : tensor<i32>
    %1 = stablehlo.reshape %arg0 : (tensor<1x3x2xf32>) -> tensor<1x3x2xf32>
    %2 = stablehlo.slice %1 [0:1, 0:1, 0:2] : (tensor<1x3x2xf32>) -> tensor<1x1x2xf32>
    %3 = stablehlo.reshape %2 : (tensor<1x1x2xf32>) -> tensor<1x2xf32>
    %c_6 = stablehlo.constant dense<0> : tensor<i32>
    %c_7 = stablehlo.constant dense<3> : tensor<i32>
    %c_8 = stablehlo.constant dense<0> : tensor<i32>
    %c_9 = stablehlo.constant dense<0> : tensor<i32>
    %c_10 = stablehlo.constant dense<3> : tensor<i32>
    %c_11 = stablehlo.constant dense<0> : tensor<i32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %4 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<1x1x2xf32>
    %c_12 = stablehlo.constant dense<0> : tensor<i32>
    %c_13 = stablehlo.constant dense<1> : tensor<i32>
    %cst_14 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %5 = stablehlo.broadcast_in_dim %cst_14, dims = [] : (tensor<f32>) -> tensor<1x2xf32>
    %cst_15 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %6 = stablehlo.broadcast_in_dim %cst_15, dims = [] : (tensor<f32>) -> tensor<1x2xf32>
    %7 = stablehlo.transpose %1, dims = [1, 0, 2] {result_layout = dense<[2, 0, 1]> : tensor<3xindex>, xla_shape = "f32[3,1,2]{2,0,1}"} : (tensor<1x3x2xf32>) -> tensor<3x1x2xf32>
    %c_16 = stablehlo.constant dense<3> : tensor<i32>
    %8:12 = stablehlo.while(%iterArg = %c_9, %iterArg_19 = %c_10, %iterArg_20 = %c_11, %iterArg_21 = %4, %iterArg_22 = %c_13, %iterArg_23 = %5, %iterArg_24 = %6, %iterArg_25 = %7, %iterArg_26 = %c_16, %iterArg_27 = %arg1, %iterArg_28 = %arg2, %iterArg_29 = %arg3) : tensor<i32>, tensor<i32>, tensor<i32>, tensor<1x1x2xf32>, tensor<i32>, tensor<1x2xf32>, tensor<1x2xf32>, tensor<3x1x2xf32>, tensor<i32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<8xf32>
    cond {
      %42 = func.call @sequential_2_1_lstm_1_while_cond_820_const_0__.3(%iterArg, %iterArg_19, %iterArg_20, %iterArg_21, %iterArg_22, %iterArg_23, %iterArg_24, %iterArg_25, %iterArg_26, %iterArg_27, %iterArg_28, %iterArg_29) : (tensor<i32>, tensor<i32>, tensor<i32>, tensor<1x1x2xf32>, tensor<i32>, tensor<1x2xf32>, tensor<1x2xf32>, tensor<3x1x2xf32>, tensor<i32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<8xf32>) -> tensor<i1>
      stablehlo.return %42 : tensor<i1>
    } do {
      %c_30 = stablehlo.constant dense<1> : tensor<i32>
      %c_31 = stablehlo.constant dense<1> : tensor<i32>
      %42 = stablehlo.add %iterArg, %c_31 : tensor<i32>
      %43 = stablehlo.reshape %42 : (tensor<i32>) -> tensor<i32>
      %44 = stablehlo.reshape %iterArg_19 : (tensor<i32>) -> tensor<i32>
      %c_32 = stablehlo.constant dense<1> : tensor<i32>
      %45 = stablehlo.add %iterArg_20, %c_32 : tensor<i32>
      %46 = stablehlo.reshape %45 : (tensor<i32>) -> tensor<i32>
      %c_33 = stablehlo.constant dense<0> : tensor<i32>
      %47 = stablehlo.dynamic_slice %iterArg_25, %iterArg_20, %c_33, %c_33, sizes = [1, 1, 2] : (tensor<3x1x2xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x1x2xf32>
      %48 = stablehlo.reshape %47 : (tensor<1x1x2xf32>) -> tensor<1x2xf32>
      %49 = stablehlo.dot %48, %iterArg_27, precision = [DEFAULT, DEFAULT] {mhlo.frontend_attributes = {grad_x = "false", grad_y = "false"}} : (tensor<1x2xf32>, tensor<2x8xf32>) -> tensor<1x8xf32>
      %50 = stablehlo.transpose %49, dims = [0, 1] : (tensor<1x8xf32>) -> tensor<1x8xf32>
      %51 = stablehlo.dot %iterArg_23, %iterArg_28, precision = [DEFAULT, DEFAULT] {mhlo.frontend_attributes = {grad_x = "false", grad_y = "false"}} : (tensor<1x2xf32>, tensor<2x8xf32>) -> tensor<1x8xf32>
      %52 = stablehlo.transpose %51, dims = [0, 1] : (tensor<1x8xf32>) -> tensor<1x8xf32>
      %53 = stablehlo.reshape %52 : (tensor<1x8xf32>) -> tensor<8xf32>
      %54 = stablehlo.broadcast_in_dim %53, dims = [1] : (tensor<8xf32>) -> tensor<1x8xf32>
      %55 = stablehlo.add %50, %54 : tensor<1x8xf32>
      %56 = stablehlo.broadcast_in_dim %iterArg_29, dims = [1] : (tensor<8xf32>) -> tensor<1x8xf32>
      %57 = stablehlo.add %55, %56 : tensor<1x8xf32>
      %58 = stablehlo.slice %57 [0:1, 6:8] : (tensor<1x8xf32>) -> tensor<1x2xf32>
      %59 = stablehlo.logistic %58 : tensor<1x2xf32>
      %60 = stablehlo.slice %57 [0:1, 2:4] : (tensor<1x8xf32>) -> tensor<1x2xf32>
      %61 = stablehlo.logistic %60 : tensor<1x2xf32>
      %62 = stablehlo.multiply %61, %iterArg_24 : tensor<1x2xf32>
      %63 = stablehlo.slice %57 [0:1, 0:2] : (tensor<1x8xf32>) -> tensor<1x2xf32>
      %64 = stablehlo.logistic %63 : tensor<1x2xf32>
      %65 = stablehlo.slice %57 [0:1, 4:6] : (tensor<1x8xf32>) -> tensor<1x2xf32>
      %66 = stablehlo.tanh %65 : tensor<1x2xf32>
      %67 = stablehlo.multiply %64, %66 : tensor<1x2xf32>
      %68 = stablehlo.add %62, %67 : tensor<1x2xf32>
      %69 = stablehlo.tanh %68 : tensor<1x2xf32>
      %70 = stablehlo.multiply %59, %69 : tensor<1x2xf32>
      %71 = stablehlo.reshape %70 : (tensor<1x2xf32>) -> tensor<1x1x2xf32>
      %c_34 = stablehlo.constant dense<0> : tensor<i32>
      %c_35 = stablehlo.constant dense<0> : tensor<i32>
      %72 = stablehlo.dynamic_update_slice %iterArg_21, %71, %c_34, %c_35, %c_35 : (tensor<1x1x2xf32>, tensor<1x1x2xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x1x2xf32>
      %73 = stablehlo.reshape %70 : (tensor<1x2xf32>) -> tensor<1x2xf32>
      %74 = stablehlo.reshape %68 : (tensor<1x2xf32>) -> tensor<1x2xf32>
      %75 = stablehlo.reshape %iterArg_27 : (tensor<2x8xf32>) -> tensor<2x8xf32>
      %76 = mhlo.copy %75 : tensor<2x8xf32>
      %77 = stablehlo.reshape %iterArg_28 : (tensor<2x8xf32>) -> tensor<2x8xf32>
      %78 = mhlo.copy %77 : tensor<2x8xf32>
      %79 = stablehlo.reshape %iterArg_29 : (tensor<8xf32>) -> tensor<8xf32>
      %80 = mhlo.copy %79 : tensor<8xf32>
      stablehlo.return %43, %44, %46, %72, %iterArg_22, %73, %74, %iterArg_25, %iterArg_26, %76, %78, %80 : tensor<i32>, tensor<i32>, tensor<i32>, tensor<1x1x2xf32>, tensor<i32>, tensor<1x2xf32>, tensor<1x2xf32>, tensor<3x1x2xf32>, tensor<i32>, tensor<2x8xf32>, tensor<2x8xf32>, tensor<8xf32>
    }
    %9 = stablehlo.transpose %8#3, dims = [1, 0, 2] {result_layout = dense<[2, 0, 1]> : tensor<3xindex>, xla_shape = "f32[1,1,2]{2,0,1}"} : (tensor<1x1x2xf32>) -> tensor<1x1x2xf32>
    %10 = stablehlo.slice %7 [0:1, 0:1, 0:2] : (tensor<3x1x2xf32>) -> tensor<1x1x2xf32>
    %11 = stablehlo.reshape %10 : (tensor<1x1x2xf32>) -> tensor<1x2xf32>
    %12 = stablehlo.dot %11, %arg1, precision = [DEFAULT, DEFAULT] {mhlo.frontend_attributes = {grad_x = "false", grad_y = "false"}} : (tensor<1x2xf32>, tensor<2x8xf32>) -> tensor<1x8xf32>
    %13 = stablehlo.transpose %12, dims = [0, 1] : (tensor<1x8xf32>) -> tensor<1x8xf32>
    %14 = stablehlo.dot %5, %arg2, precision = [DEFAULT, DEFAULT] {mhlo.frontend_attributes = {grad_x = "false", grad_y = "false"}} : (tensor<1x2xf32>, tensor<2x8xf32>) -> tensor<1x8xf32>
    %15 = stablehlo.transpose %14, dims = [0, 1] : (tensor<1x8xf32>) -> tensor<1x8xf32>
    %16 = stablehlo.reshape %15 : (tensor<1x8xf32>) -> tensor<8xf32>
    %17 = stablehlo.broadcast_in_dim %16, dims = [1] : (tensor<8xf32>) -> tensor<1x8xf32>
    %18 = stablehlo.add %13, %17 : tensor<1x8xf32>
    %19 = stablehlo.broadcast_in_dim %arg3, dims = [1] : (tensor<8xf32>) -> tensor<1x8xf32>
    %20 = stablehlo.add %18, %19 : tensor<1x8xf32>
    %21 = stablehlo.slice %20 [0:1, 6:8] : (tensor<1x8xf32>) -> tensor<1x2xf32>
    %22 = stablehlo.logistic %21 : tensor<1x2xf32>
    %23 = stablehlo.slice %20 [0:1, 2:4] : (tensor<1x8xf32>) -> tensor<1x2xf32>
    %24 = stablehlo.logistic %23 : tensor<1x2xf32>
    %25 = stablehlo.multiply %24, %6 : tensor<1x2xf32>
    %26 = stablehlo.slice %20 [0:1, 0:2] : (tensor<1x8xf32>) -> tensor<1x2xf32>
    %27 = stablehlo.logistic %26 : tensor<1x2xf32>
    %28 = stablehlo.slice %20 [0:1, 4:6] : (tensor<1x8xf32>) -> tensor<1x2xf32>
    %29 = stablehlo.tanh %28 : tensor<1x2xf32>
    %30 = stablehlo.multiply %27, %29 : tensor<1x2xf32>
    %31 = stablehlo.add %25, %30 : tensor<1x2xf32>
    %32 = stablehlo.tanh %31 : tensor<1x2xf32>
    %33 = stablehlo.multiply %22, %32 : tensor<1x2xf32>
    %34 = stablehlo.slice %8#3 [0:1, 0:1, 0:2] : (tensor<1x1x2xf32>) -> tensor<1x1x2xf32>
    %35 = stablehlo.reshape %34 : (tensor<1x1x2xf32>) -> tensor<1x2xf32>
    %cst_17 = stablehlo.constant dense<[[0.841470957, 0.909297406]]> : tensor<1x2xf32>
    %36 = stablehlo.multiply %35, %cst_17 : tensor<1x2xf32>
    %37 = stablehlo.convert %36 : tensor<1x2xf32>
    %cst_18 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %38 = stablehlo.convert %cst_18 : tensor<f32>
    %39 = stablehlo.reduce(%37 init: %38) applies stablehlo.add across dimensions = [0, 1] : (tensor<1x2xf32>, tensor<f32>) -> tensor<f32>
    %40 = stablehlo.convert %39 : tensor<f32>
    %41 = stablehlo.reshape %40 : (tensor<f32>) -> tensor<f32>
    return %41 : tensor<f32>
  }
}
