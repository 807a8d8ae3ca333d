"""The search for the op that makes a NaN: `pb.find_nan`.

The search walks backwards from the NaNs of the results, one block at a time. A *probe* of a block
is a copy of the module whose entry is that block and returns every value in it; so XLA runs all of
it at its own speed, and each value is at hand when an op is asked which elements of its operands
made the NaNs of its result: `as_jax` runs it with some of them alone. Of a call, a branch or a loop
only the results are computed, until one of them holds a NaN that reaches a result of the program:
then its body is probed in turn, a loop's one iteration after the other, from the last to the first.
A program in which nothing is NaN is run once, as it is, and none of this happens.
"""
