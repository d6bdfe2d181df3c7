"""
On a Dask cluster
=================

The hops of a store are computed by the workers of a Dask cluster: each does some columns of X,
reads and writes the shared folder, and only names travel over the network. Workers may die; what
they had is given to others. The result is that of one process, byte for byte.
"""
