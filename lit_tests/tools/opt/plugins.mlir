// RUN: pullback-opt -load-pass-plugin=%S/Inputs/acme_passes.py -cse --acme-rename="suffix=_2" %s | filecheck %s
// RUN: pullback-opt --load-pass-plugin %S/Inputs/acme_passes.py -list-passes | filecheck %s --check-prefix=LIST
// RUN: not pullback-opt --load-pass-plugin %S/Inputs/acme_passes.py --acme-rename="sufix=_2" %s 2>&1 | filecheck %s --check-prefix=OPTION
// RUN: not pullback-opt --load-pass-plugin %S/Inputs/acme_passes.py --acme-rename="suffix=raise" %s 2>&1 | filecheck %s --check-prefix=RAISES
// RUN: not pullback-opt --load-pass-plugin %S/Inputs/broken_passes.py -cse %s 2>&1 | filecheck %s --check-prefix=BROKEN
// RUN: not pullback-opt --load-pass-plugin %S/Inputs/second_passes.py -cse %s 2>&1 | filecheck %s --check-prefix=SECOND
// RUN: not pullback-opt --load-pass-plugin json -cse %s 2>&1 | filecheck %s --check-prefix=NONE

// CHECK: func.func @main_2
// LIST: Passes of other packages:
// LIST-NEXT: acme-rename {{ *}} Give the entry another name.
// LIST-NEXT: suffix {{ *}} a string; default _1
// OPTION: error: pass 'acme-rename' has no option 'sufix'
// OPTION: do: did you mean suffix?
// RAISES: error: the pass `acme-rename` failed on `{{.*}}plugins.mlir`: ValueError: no such suffix
// RAISES: where: {{.*}}acme_passes.py:20, in run
// BROKEN: error: importing `{{.*}}broken_passes.py` failed: RuntimeError: broken on import
// SECOND: error: two passes are named 'cse'
// SECOND: where: MLIR and {{.*}}second_passes.py
// NONE: error: `json` defines no pass
// NONE: do: write a subclass of pullback.passes.base.Pass that has a `name`
func.func @main(%x: tensor<f32>) -> tensor<f32> {
  return %x : tensor<f32>
}
