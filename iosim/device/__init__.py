"""What a GPU does with a kernel: its launch as L2 sees it, and the bytes that HBM moves for it."""
