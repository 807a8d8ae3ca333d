// Each stage shows the same three calls, and the last two show none of them.
// RUN: pullback dump %S/../../../examples/rules.py:train_step --stage jaxpr | filecheck %s --check-prefix=JAXPR
// RUN: pullback dump %S/../../../examples/rules.py:train_step --stage kept | filecheck %s --check-prefix=KEPT
// RUN: pullback dump %S/../../../examples/rules.py:train_step | filecheck %s --check-prefix=PROGRAM
// RUN: pullback dump %S/../../../examples/rules.py:train_step --stage stablehlo | filecheck %s --check-prefix=STABLEHLO
// RUN: pullback dump %S/../../../examples/rules.py:train_step --stage hlo | filecheck %s --check-prefix=HLO

// JAXPR: custom_vjp_call[
// JAXPR: linear_call[
// JAXPR: custom_jvp_call[
// JAXPR: scan[

// KEPT: pullback.custom_vjp_call[
// KEPT: pullback.linear_call[
// KEPT: pullback.custom_jvp_call[
// KEPT: scan[

// PROGRAM-LABEL: func.func public @main
// PROGRAM: stablehlo.while
// PROGRAM: stablehlo.composite "pullback.custom_vjp_call"
// PROGRAM-SAME: decomposition = @clip_cotangent}
// PROGRAM: stablehlo.composite "pullback.linear_call"
// PROGRAM-SAME: num_residuals = 1 : i64
// PROGRAM: stablehlo.composite "pullback.custom_jvp_call"
// PROGRAM-SAME: decomposition = @logistic_loss}

// STABLEHLO-LABEL: func.func public @main
// STABLEHLO-NOT: pullback
// STABLEHLO-NOT: chlo.
// STABLEHLO: stablehlo.while

// HLO: HloModule
// HLO: op_name={{.*}}pullback.custom_jvp_call
