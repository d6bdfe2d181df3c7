"""The engine: kernels on NumPy arrays, dropout masks, and the orders in which a sum is evaluated.

    H = sum_{i=0..k} c_i p_i(M) X~ Theta        M: n x n,  X~: n x d,  Theta: d x m,  H: n x m

Every kernel is a plain function on arrays, in C++ (releasing the GIL) or in NumPy and SciPy. Its
bits do not depend on the number of threads, nor on what runs at the same time.
"""
