"""What is sent: the bytes of every message, and how often a step has it.

The one place where bytes and counts along an axis are written down: the step time prices the same
sizes (``predict.time.exchange``), and ``plan --explain`` shows them. Sizes are whole buffers as
nccl-tests counts them (``collectives.CollectiveCosts.seconds``).

Left out, as they are small: padding, statistics of routers, the norm of gradients (one number), and
gradients of norms that tensor-parallel ranks sum once a step under sequence parallelism.
"""
