"""The kernels' source: factories that take the lane's instructions and a variant's constants."""
