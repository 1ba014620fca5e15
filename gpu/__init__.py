"""The GPU backend (import name iosim.gpu)."""
