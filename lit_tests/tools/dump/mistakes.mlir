// RUN: not pullback dump %S/absent.py:f 2>&1 | filecheck %s --check-prefix=FILE
// RUN: not pullback dump %S/../../../examples/rules.py:train_stp 2>&1 | filecheck %s --check-prefix=NAME
// RUN: not pullback dump %S/../../../examples/rules.py:train_step --args 'f32[4' 2>&1 | filecheck %s --check-prefix=ARGS

// FILE: UsageError: no file
// FILE-NEXT: do: write `path/file.py:function` or `package.module:function`

// NAME: UsageError: no function `train_stp`
// NAME-NEXT: do: did you mean `train_step`?

// ARGS: UsageError: --args: expected ',', found 'the end'
// ARGS-NEXT: f32[4
// ARGS-NEXT: {{^ +\^$}}
